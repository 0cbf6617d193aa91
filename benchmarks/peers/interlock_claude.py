"""interlock as the host of the stand-in program."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers.claude_host import PROGRAM, TEXT, Ask, serve
from interlock import Server
from interlock.claude import Allow, ClaudeCode, Request

server = Server("math")


@server.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def text(size: int) -> str:
    """Return a text."""
    return TEXT * size


async def allow(_: Request) -> Allow:
    return Allow()


@asynccontextmanager
async def opened(decides: bool) -> AsyncIterator[Ask]:
    permissions = allow if decides else None
    servers = {"math": server}
    async with ClaudeCode(
        servers, program=PROGRAM, permissions=permissions, max_result=0
    ) as claude:

        async def ask(prompt: str) -> str:
            return (await claude.ask(prompt)).text

        yield ask


if __name__ == "__main__":
    serve(opened)
