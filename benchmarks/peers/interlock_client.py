"""The benchmark's client, with interlock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.worker import Session, Target, work
from interlock import Client, StdioServer, Toolbox
from interlock.config import HttpServer

MAX_BYTES = 64 * 1024 * 1024


class ClientSession:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, number: int) -> object:
        return await self.client.call_tool("add", {"a": number, "b": 1})

    async def text(self, size: int) -> int:
        return len((await self.client.call_tool("text", {"size": size})).text)

    async def list(self) -> int:
        return len(await self.client.list_tools())


class ToolboxSession:
    def __init__(self, toolbox: Toolbox) -> None:
        self.toolbox = toolbox
        self.adders = [each.address for each in toolbox.tools if each.tool.name == "add"]
        self.last = 0

    async def call(self, number: int) -> object:
        self.last += 1
        address = self.adders[self.last % len(self.adders)]
        return await self.toolbox.call(address, {"a": number, "b": 1})

    async def list(self) -> int:
        return len(self.toolbox.tools)


class AgentSession:
    """A call of it is a conversation: the model asks for a tool in each round but the last."""

    def __init__(self, toolbox: Toolbox, rounds: int) -> None:
        from interlock.agent import Agent
        from interlock.messages import ToolCall, UserMessage
        from interlock.models.scripted import ScriptedModel

        ask = [ToolCall(id="1", name="bench__add", input={"a": 1, "b": 1})]
        self.script = [*[ask] * (rounds - 1), "done"]
        self.make = lambda: Agent(ScriptedModel(self.script), toolbox)
        self.request = UserMessage

    async def call(self, number: int) -> object:
        return await self.make().complete([self.request(str(number))])


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Session]:
    if "agent" in target:
        async with Toolbox({"bench": _own_server()}) as toolbox:
            yield AgentSession(toolbox, target["agent"])
    elif "servers" in target:
        servers = {name: _configured(each) for name, each in target["servers"].items()}
        async with Toolbox(servers) as toolbox:
            broken = {name: each for name, each in toolbox.status.items() if each.state != "ok"}
            assert not broken, broken
            yield ToolboxSession(toolbox)
    else:
        async with _client(target) as client:
            yield ClientSession(client)


def _configured(target: Target) -> StdioServer | HttpServer:
    if "url" in target:
        return HttpServer(url=target["url"])
    return StdioServer(command=target["argv"][0], args=tuple(target["argv"][1:]))


def _client(target: Target) -> Client:
    if "argv" in target:
        return Client.stdio(*target["argv"], max_frame_bytes=MAX_BYTES)
    if "url" in target:
        return Client.http(target["url"], max_frame_bytes=MAX_BYTES)
    return Client.memory(_own_server())


def _own_server():
    from benchmarks.peers.interlock_server import server

    return server


if __name__ == "__main__":
    work(connect, "interlock")
