"""The least that a client can do. A yardstick: no deadline, no check, no cancellation."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
from msgspec import Raw, Struct

from benchmarks.worker import Session, Target, work

META = Raw(
    b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{},'
    b'"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}'
)
MAX_BYTES = 1 << 26
encode = msgspec.json.encode


class Reply(Struct):
    id: int
    result: Raw


class Text(Struct):
    text: str


class Result(Struct):
    content: list[Text]


class Page(Struct):
    tools: list[dict]
    next_cursor: str = msgspec.field(name="nextCursor", default="")


decode_reply = msgspec.json.Decoder(Reply).decode
decode_result = msgspec.json.Decoder(Result).decode


class BareSession:
    """What is the same for every way to a server; `ask` differs."""

    def __init__(self) -> None:
        self.last = 0

    def message(self, method: str, params: dict) -> bytes:
        self.last += 1
        return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":%b}' % (
            self.last,
            method.encode(),
            encode({**params, "_meta": META}),
        )

    async def ask(self, method: str, params: dict) -> Raw:
        raise NotImplementedError  # each transport's subclass sends the request

    async def call(self, number: int) -> object:
        params = {"name": "add", "arguments": {"a": number, "b": 1}}
        return decode_result(await self.ask("tools/call", params))

    async def text(self, size: int) -> int:
        params = {"name": "text", "arguments": {"size": size}}
        return len(decode_result(await self.ask("tools/call", params)).content[0].text)

    async def find(self) -> None:
        """Find out who it is, and what it has."""
        await self.ask("server/discover", {})
        await self.list()

    async def list(self) -> int:
        count, cursor = 0, "0"
        while cursor:
            raw = await self.ask("tools/list", {"cursor": cursor})
            page = msgspec.json.decode(raw, type=Page)
            count += len(page.tools)
            cursor = page.next_cursor
        return count


class Stdio(BareSession):
    """asyncio's own streams, one future a call."""

    def __init__(self, argv: list[str]) -> None:
        super().__init__()
        self.process = subprocess.Popen(argv, stdin=-1, stdout=-1, bufsize=0)
        self.waiting: dict[int, asyncio.Future[Raw]] = {}

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=MAX_BYTES)
        reading = asyncio.StreamReaderProtocol(self.reader)
        self.source, _ = await loop.connect_read_pipe(lambda: reading, self.process.stdout)
        self.target, _ = await loop.connect_write_pipe(asyncio.Protocol, self.process.stdin)
        self.reading = asyncio.create_task(self.read())

    async def close(self) -> None:
        self.target.close()
        await self.reading
        self.source.close()
        self.process.wait()

    async def read(self) -> None:
        while line := await self.reader.readline():
            reply = decode_reply(line)
            self.waiting.pop(reply.id).set_result(reply.result)

    async def ask(self, method: str, params: dict) -> Raw:
        line = self.message(method, params) + b"\n"
        self.waiting[self.last] = future = asyncio.get_running_loop().create_future()
        self.target.write(line)
        return await future


class Http(BareSession):
    """One POST after the other, with aiohttp."""

    def __init__(self, url: str, http) -> None:
        super().__init__()
        self.url = url
        self.http = http

    async def ask(self, method: str, params: dict) -> Raw:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
        }
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        body = self.message(method, params)
        async with self.http.post(self.url, data=body, headers=headers) as response:
            return decode_reply(await response.read()).result


class Memory(BareSession):
    """A function, and the JSON there and back."""

    class Call(Struct):
        class Params(Struct):
            class Arguments(Struct):
                a: int = 0
                b: int = 0
                size: int = 0

            name: str
            arguments: Arguments

        id: int
        params: Params

    def __init__(self) -> None:
        super().__init__()
        self.decode_call = msgspec.json.Decoder(self.Call).decode

    async def ask(self, method: str, params: dict) -> Raw:
        call = self.decode_call(self.message(method, params))
        text = await answer(call.params.arguments)
        result = encode({"content": [{"type": "text", "text": text}]})
        return decode_reply(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (call.id, result)).result


async def answer(arguments) -> str:
    return "x" * arguments.size or str(arguments.a + arguments.b)


class Many:
    """Several servers, called in turn."""

    def __init__(self, sessions: list[BareSession]) -> None:
        self.sessions = sessions
        self.last = 0

    async def call(self, number: int) -> object:
        self.last += 1
        return await self.sessions[self.last % len(self.sessions)].call(number)

    async def find(self) -> None:
        await asyncio.gather(*(each.find() for each in self.sessions))


class HandWritten:
    """An agent's loop as one would write it for one model and one client of ours."""

    def __init__(self, client, rounds: int) -> None:
        from interlock.messages import ToolCall
        from interlock.models.scripted import ScriptedModel

        ask = [ToolCall(id="1", name="add", input={"a": 1, "b": 1})]
        self.model = lambda: ScriptedModel([*[ask] * (rounds - 1), "done"])
        self.client = client

    async def call(self, number: int) -> object:
        from interlock.messages import ToolMessage, UserMessage

        model, messages = self.model(), [UserMessage(str(number))]
        while True:
            async for event in model.stream(messages):
                reply = event  # the last one is it
            messages.append(reply.message)
            if not reply.message.tool_calls:
                return messages
            for call in reply.message.tool_calls:
                result = await self.client.call_tool(call.name, call.input)
                messages.append(ToolMessage(call.id, result.text))


@asynccontextmanager
async def connect(target: Target) -> AsyncIterator[Session]:
    async with AsyncExitStack() as stack:
        if "agent" in target:
            from benchmarks.peers.interlock_server import server
            from interlock import Client

            client = await stack.enter_async_context(Client.memory(server))
            yield HandWritten(client, target["agent"])
        elif "servers" in target:
            targets = target["servers"].values()
            sessions = Many([await _open(each, stack) for each in targets])
            await sessions.find()
            yield sessions
        else:
            yield await _open(target, stack)


async def _open(target: Target, stack: AsyncExitStack) -> BareSession:
    if "argv" in target:
        session = Stdio(target["argv"])
        await session.open()
        stack.push_async_callback(session.close)
        return session
    if "url" in target:
        import aiohttp

        http = await stack.enter_async_context(aiohttp.ClientSession())
        return Http(target["url"], http)
    return Memory()


if __name__ == "__main__":
    work(connect)
