"""A program that gives itself little memory, with an interlock server or client in it.

    python little_memory.py serve            a server on stdio
    python little_memory.py serve http       ... on a port, which it tells on stderr
    python little_memory.py use URL          a client of a server over HTTP
    python little_memory.py use PROGRAM ...  ... of a server on stdio

The client asks for what does not fit, and at the same time for something small; it reports how
both ended, and how the next call did, in one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
from collections.abc import Awaitable
from pathlib import Path
from time import monotonic
from typing import Any

from interlock import Client, Server
from interlock.errors import InterlockError
from interlock.types import CallToolResult

ROOM = 24 * 2**20  # bytes besides what is in use
TOO_MUCH = 40 * 2**20

server = Server("little")


@server.tool
async def shrink() -> str:
    """Limit the memory of this process."""
    leave_room()
    return "done"


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def count(text: str) -> int:
    """Count characters."""
    return len(text)


@server.tool
async def make(size: int) -> str:
    """Make a text."""
    return "x" * size


def leave_room() -> None:
    """Set the limit."""
    status = Path("/proc/self/status").read_text()
    used = int(status.partition("VmSize:")[2].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))


async def use(*place: str) -> None:
    """Ask for what does not fit, and for what does."""
    options: dict[str, Any] = {"timeout": 20.0, "max_frame_bytes": 2**28}
    is_url = "://" in place[0]
    client = Client.http(*place, **options) if is_url else Client.stdio(*place, **options)
    async with client:
        await client.call_tool("echo", {"text": "before"})
        leave_room()
        began = monotonic()
        large = asyncio.create_task(client.call_tool("frame", {"size": TOO_MUCH}))
        small = asyncio.create_task(client.call_tool("echo", {"text": "beside it"}))
        report: dict[str, object] = {"large": await end_of(large), "small": await end_of(small)}
        report["later"] = await end_of(client.call_tool("echo", {"text": "later"}))
        report["seconds"] = monotonic() - began
        print(json.dumps(report), flush=True)


async def end_of(call: Awaitable[CallToolResult]) -> str:
    """Return the text of a result, or the type and text of an error."""
    try:
        return (await call).text
    except InterlockError as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    match sys.argv[1:]:
        case ["serve"]:
            server.run()
        case ["serve", "http"]:
            server.run_http(port=0, max_body_bytes=2**28)
        case ["use", *place]:
            asyncio.run(use(*place))
