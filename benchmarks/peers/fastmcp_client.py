"""The benchmark's client, with FastMCP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastmcp import Client
from fastmcp.client.group import ClientGroup
from fastmcp.client.transports import StdioTransport

from benchmarks.worker import Session, Target, work


class ClientSession:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, number: int) -> object:
        return await self.client.call_tool("add", {"a": number, "b": 1})

    async def text(self, size: int) -> int:
        return len((await self.client.call_tool("text", {"size": size})).content[0].text)

    async def list(self) -> int:
        return len(await self.client.list_tools())


class GroupSession:
    def __init__(self, group: ClientGroup, adders: list[str]) -> None:
        self.group = group
        self.adders = adders
        self.last = 0

    async def call(self, number: int) -> object:
        self.last += 1
        adder = self.adders[self.last % len(self.adders)]
        return await self.group.call_tool(adder, {"a": number, "b": 1})

    async def list(self) -> int:
        return len(await self.group.list_tools())


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Session]:
    if "servers" in target:
        clients = {name: Client(_server(each)) for name, each in target["servers"].items()}
        async with ClientGroup(clients) as group:
            tools = await group.list_tools()
            yield GroupSession(group, [tool.name for tool in tools if tool.name.endswith("add")])
    else:
        async with Client(_server(target)) as client:
            yield ClientSession(client)


def _server(target: Target):
    if "argv" in target:
        command, *arguments = target["argv"]
        return StdioTransport(command, arguments, keep_alive=False)
    if "url" in target:
        return target["url"]
    from benchmarks.peers.fastmcp_server import server

    return server


if __name__ == "__main__":
    work(connect, "fastmcp", "mcp", "mcp_types")
