"""A report that a model writes every morning, with tools and without a person."""

import asyncio
import sys
from pathlib import Path

from interlock import Agent, InterlockError, StdioServer, Toolbox
from interlock.messages import UserMessage

QUESTION = "What time is it in Asia/Tokyo?"
REPORT = Path("report.txt")


async def main() -> str:
    """Ask the model, and return its answer."""
    async with (
        Toolbox({"time": StdioServer(command="mcp-server-time")}) as toolbox,
        Agent("local", toolbox, max_rounds=5) as agent,
    ):
        answer = await agent.complete([UserMessage(QUESTION)])
    return answer.content


if __name__ == "__main__":
    try:
        REPORT.write_text(f"{asyncio.run(main())}\n")
        print(f"wrote {REPORT}")
    except InterlockError as error:
        sys.exit(f"error: {error}")  # cron sends this line by mail
