"""An MCP server in memory that does what the test says, and keeps what it was told.

It is written against JSON, with nothing of ours but the transport, so that it agrees with the
specification and not with our encoder.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any

from interlock.errors import InterlockError, RemoteError
from interlock.transports.memory import MemoryTransport

Json = dict[str, Any]
Answer = Json | Callable[[Json], Awaitable[Json | None] | Json | None]

LEGACY = "2025-11-25"
MODERN = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"


class ScriptedServer:
    """Answers each method with a result, or with what a function makes of the params.

    A function may be async, raise `RemoteError`, or return None to say nothing at all.

    Args:
        revision: The only one it speaks.
        answers: By method; `initialize` and `server/discover` answer themselves.
        capabilities: What it declares.

    Attributes:
        received: Every message it was sent, of all connections.
        connections: How many there were.
    """

    def __init__(
        self,
        revision: str = LEGACY,
        answers: dict[str, Answer] | None = None,
        *,
        capabilities: Json | None = None,
    ) -> None:
        self.revision = revision
        self.answers: dict[str, Answer] = dict(answers or {})
        self.capabilities = {"tools": {}} if capabilities is None else capabilities
        self.received: list[Json] = []
        self.connections = 0
        self._news = asyncio.Event()
        self._link: _Link | None = None

    def connect(self) -> MemoryTransport:
        """Make the client's end of a new connection."""
        ours, theirs = MemoryTransport.pair()
        self.connections += 1
        self._link = _Link(self, ours)
        return theirs

    # Looking

    def sent(self, method: str) -> list[Json]:
        """List the params of all requests and notifications of this method."""
        return [each.get("params", {}) for each in self.received if each.get("method") == method]

    async def heard(self, method: str, times: int = 1) -> Json:
        """Wait until `method` has come `times` times; give the params of that one."""
        while len(self.sent(method)) < times:
            self._news.clear()
            await self._news.wait()
        return self.sent(method)[times - 1]

    # Speaking

    def send(self, *messages: Json | bytes) -> None:
        """Send messages as they are."""
        assert self._link is not None
        self._link.send(messages)

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: Json | None = None) -> Json:
        """Send a request and wait for the whole response."""
        assert self._link is not None
        return await self._link.ask(method, params or {})

    @property
    def is_closed(self) -> bool:
        """Whether the last connection has ended."""
        return self._link is None or self._link.is_closed

    async def end(self) -> None:
        """Close the connection, as a server that goes away."""
        assert self._link is not None
        await self._link.transport.close()

    # Answering

    def take(self, message: Json) -> None:
        self.received.append(message)
        self._news.set()

    async def answer(self, method: str, params: Json) -> Json | None:
        answer = self.answers.get(method)
        if answer is None:
            return self._handshake(method, params)
        if not callable(answer):
            return answer
        given = answer(params)
        return await given if isawaitable(given) else given

    def _handshake(self, method: str, params: Json) -> Json:
        if method == "initialize" and self.revision != MODERN:
            return {
                "protocolVersion": self.revision,
                "capabilities": self.capabilities,
                "serverInfo": {"name": "scripted", "version": "1"},
                "instructions": "Be kind.",
            }
        if method == "server/discover" and self.revision == MODERN:
            return {
                "supportedVersions": [self.revision],
                "capabilities": self.capabilities,
                "instructions": "Be kind.",
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {
                    "io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "1"}
                },
            }
        if method == "ping" and self.revision != MODERN:
            return {}
        raise RemoteError(-32601, f"no method {method}")


class _Link:
    """One connection of the server."""

    def __init__(self, server: ScriptedServer, transport: MemoryTransport) -> None:
        self.transport = transport
        self.is_closed = False
        self._server = server
        self._last_id = 0
        self._asked: dict[int, asyncio.Future[Json]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._start(self.transport.open(self))

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def frames_received(self, frames: list[bytes], request: object = None) -> None:
        for frame in frames:
            message = json.loads(frame)
            self._server.take(message)
            if "method" not in message:
                asked = self._asked.pop(message["id"], None)
                if asked is not None:
                    asked.set_result(message)
            elif "id" in message:
                self._start(self._answer(message))

    async def settle(self, timeout: float) -> None:
        pass

    def connection_lost(self, error: InterlockError) -> None:
        self.is_closed = True
        for task in self._tasks:
            task.cancel()

    async def _answer(self, request: Json) -> None:
        answer: Json = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            result = await self._server.answer(request["method"], request.get("params", {}))
        except RemoteError as error:
            answer["error"] = {"code": error.code, "message": error.message}
            if error.data is not None:
                answer["error"]["data"] = error.data
        else:
            if result is None:
                return
            if self._server.revision == MODERN:
                result = {"resultType": "complete", **result}
            answer["result"] = result
        self.send([answer])

    def send(self, messages: Iterable[Json | bytes]) -> None:
        self.transport.send(
            [
                each
                if isinstance(each, bytes)
                else json.dumps(each, separators=(",", ":")).encode()
                for each in messages
            ]
        )

    async def ask(self, method: str, params: Json) -> Json:
        self._last_id += 1
        self._asked[self._last_id] = asked = asyncio.get_running_loop().create_future()
        self.send([{"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}])
        return await asked


# Scripts


def tool(name: str, **fields: Any) -> Json:
    """A tool as in `tools/list`."""
    return {"name": name, "inputSchema": {"type": "object"}, **fields}


def text(text: str, **fields: Any) -> Json:
    """The result of a call that gives a text."""
    return {"content": [{"type": "text", "text": text}], **fields}
