"""Call a tool of a real MCP server, then let a model call it.

Run: python examples/toolbox_and_agent.py      (needs the extra local and mcp-server-time)
"""

import asyncio
from pathlib import Path

from interlock import Agent, Toolbox
from interlock.messages import UserMessage

CONFIG = Path(__file__).with_name("mcp.json")


async def main() -> None:
    async with Toolbox.from_config(CONFIG) as toolbox:
        result = await toolbox.call("time:get_current_time", {"timezone": "Asia/Tokyo"})
        print(result.structured["datetime"])
        async with Agent("local", toolbox) as agent:
            answer = await agent.complete([UserMessage("What time is it in Asia/Tokyo?")])
            print(answer.content)


if __name__ == "__main__":
    asyncio.run(main())
