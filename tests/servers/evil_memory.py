"""A server in this program that misbehaves as it is told: the messages of `evil_http`, no HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from interlock.errors import InterlockError
from interlock.transports.memory import MemoryTransport

from . import evil_http
from .evil_http import MODERN, Asked, Json, honest, result

MISBEHAVIOURS = {
    each.__name__: each
    for each in (
        *(result, evil_http.pages, evil_http.echo, evil_http.error),
        *(evil_http.frame, evil_http.say, evil_http.mute, evil_http.progress),
    )
}


class EvilMemory:
    """The server; `connect` it as any in this program.

    Attributes:
        form: For the misbehaviours, which may say any number of messages here.
        asked: Every message that has come, in order.
        tools: What it lists.
    """

    form = "stream"

    def __init__(self, revision: str = MODERN) -> None:
        self.revision = revision
        self.asked: list[Asked] = []
        self.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in MISBEHAVIOURS]
        self._told: dict[str, tuple[str, Json]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self) -> MemoryTransport:
        """Make the client's end of a new connection."""
        ours, theirs = MemoryTransport.pair()
        self._start(ours.open(_Receiver(self, ours)))
        return theirs

    def tell(self, method: str, misbehaviour: str, **arguments: Any) -> None:
        """Misbehave at all requests of a method."""
        self._told[method] = (misbehaviour, arguments)

    def behave(self) -> None:
        """Forget what `tell` has told."""
        self._told.clear()

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take(self, asked: _MemoryAsked) -> None:
        self.asked.append(asked)
        if "id" in asked.message and "method" in asked.message:
            self._start(self._answer(asked))

    async def _answer(self, asked: _MemoryAsked) -> None:
        if asked.method in self._told:
            name, arguments = self._told[asked.method]
            await MISBEHAVIOURS[name](self, asked, **arguments)
        elif asked.method == "tools/call":
            params = asked.message["params"]
            await MISBEHAVIOURS[params["name"]](self, asked, **params.get("arguments", {}))
        elif (answer := honest(asked.method, self.revision, self.tools)) is None:
            await self.refuse(asked, -32601)
        else:
            await result(self, asked, **answer)

    async def refuse(self, asked: _MemoryAsked, code: int, **more: Any) -> None:
        """Answer with an error."""
        refusal = {"code": code, "message": f"error {code}", **more}
        answer = {"jsonrpc": "2.0", "id": asked.message["id"], "error": refusal}
        await asked.send(self.form, json.dumps(answer).encode())


class _MemoryAsked:
    """One message, and the way back."""

    old = None

    def __init__(self, transport: MemoryTransport, gone: asyncio.Event, frame: bytes) -> None:
        self.message: Json = json.loads(frame)
        self.gone = gone
        self._transport = transport

    @property
    def method(self) -> str:
        return self.message.get("method", "answer")

    @property
    def id(self) -> str:
        return json.dumps(self.message.get("id"))

    async def send(self, form: str, *frames: bytes) -> None:
        self._transport.send(list(frames))


class _Receiver:
    def __init__(self, server: EvilMemory, transport: MemoryTransport) -> None:
        self._server = server
        self._transport = transport
        self._gone = asyncio.Event()

    def frames_received(self, frames: list[bytes], request: object = None) -> None:
        for frame in frames:
            self._server.take(_MemoryAsked(self._transport, self._gone, frame))

    def connection_lost(self, error: InterlockError) -> None:
        self._gone.set()
