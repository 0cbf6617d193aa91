"""A server whose tools return the id of its process, after a while or after a question."""

from __future__ import annotations

import asyncio
import os

from interlock import Context, Server

server = Server("worker")


@server.tool
async def who(context: Context, seconds: float = 0.0) -> str:
    """Return the process id, after some seconds; progress reports that the call has begun."""
    context.progress(1)
    await asyncio.sleep(seconds)
    return str(os.getpid())


@server.tool
async def ask(context: Context) -> str:
    """Ask the user for a word; return the process id and the word."""
    schema = {"type": "object", "properties": {"word": {"type": "string"}}}
    answer = await context.elicit("Which word?", schema)
    return f"{os.getpid()} {(answer.content or {}).get('word')}"


if __name__ == "__main__":
    server.run()
