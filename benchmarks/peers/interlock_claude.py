"""interlock as the host of the stand-in program."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers.claude_host import PROGRAM, TEXT, Ask, serve
from interlock import Server
from interlock.claude import Allow, ClaudeCode, PermissionRequest

server = Server("math")


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def text(size: int) -> str:
    """Return a text."""
    return TEXT * size


def large(number: int) -> Server:
    """Return a server of 20 tools; no two tools have the same schema."""
    made = Server(f"large{number}")
    for place in range(20):

        async def search(
            query: str, limit: int = 20 * number + place, kinds: list[str] | None = None
        ) -> str:
            """Search everything that there is for a text, and return the best matches first."""
            return f"{query} {limit} {kinds}"

        search.__name__ = f"search_{number}_{place}"
        made.tool(search)
    return made


def number_of(name: str) -> int:
    """Return N of the argument NAME=N."""
    given = (each.partition("=") for each in sys.argv)
    return next((int(value) for key, _, value in given if key == name), 0)


async def allow(_: PermissionRequest) -> Allow:
    return Allow()


@asynccontextmanager
async def opened(decides: bool) -> AsyncIterator[Ask]:
    permissions = allow if decides else None
    made = {f"large{number}": large(number) for number in range(number_of("made"))}
    servers = {"math": server}
    if "given" in sys.argv:
        servers |= made
    async with ClaudeCode(
        servers, program=PROGRAM, permissions=permissions, max_result=0
    ) as claude:

        async def ask(prompt: str) -> str:
            return (await claude.ask(prompt)).text

        yield ask


if __name__ == "__main__":
    serve(opened)
