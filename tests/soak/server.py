"""The honest server of the soak: in the same program, or over HTTP on the port that is named."""

from __future__ import annotations

import asyncio
import sys

from interlock import Server, ToolError

server = Server("soak", version="1")


@server.tool
async def echo(text: str) -> str:
    """Give the same text."""
    return text


@server.tool
def echo_in_a_thread(text: str) -> str:
    """Give the same text."""
    return text


@server.tool
async def fail() -> str:
    """Say no."""
    raise ToolError("no")


@server.tool
async def tasks() -> str:
    """Count the tasks of this program."""
    return str(len(asyncio.all_tasks()))


@server.tool
async def hang() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return "never"


if __name__ == "__main__":
    server.run_http(port=int(sys.argv[1]))
