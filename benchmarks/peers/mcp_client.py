"""The benchmark's client, with the `mcp` package."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mcp import Client, StdioServerParameters

from benchmarks.worker import Session, Target, work


class ClientSession:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, number: int) -> object:
        return await self.client.call_tool("add", {"a": number, "b": 1})

    async def text(self, size: int) -> int:
        return len((await self.client.call_tool("text", {"size": size})).content[0].text)

    async def list(self) -> int:
        page = await self.client.list_tools()
        count = len(page.tools)
        while page.next_cursor:
            page = await self.client.list_tools(cursor=page.next_cursor)
            count += len(page.tools)
        return count


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Session]:
    async with Client(_server(target)) as client:
        yield ClientSession(client)


def _server(target: Target):
    if "argv" in target:
        return StdioServerParameters(command=target["argv"][0], args=target["argv"][1:])
    if "url" in target:
        return target["url"]
    from benchmarks.peers.mcp_server import server

    return server


if __name__ == "__main__":
    work(connect, "mcp", "mcp_types")
