"""A server in this program that misbehaves as it is told: the messages of `evil_http`, no HTTP.

The tool `anything` does what comes next in a script, which is the same for the same seed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from interlock.errors import InterlockError
from interlock.transports.memory import MemoryTransport
from tests.servers import evil_http
from tests.servers.evil_http import MODERN, Asked, Json, honest, result


async def leave(server: EvilMemory, asked: _MemoryAsked) -> None:
    """End the connection without an answer."""
    await asked.transport.close()
    asked.gone.set()


async def anything(server: EvilMemory, asked: _MemoryAsked) -> None:
    """Run the next misbehaviour of the script."""
    name, arguments = next(server.script)
    await MISBEHAVIOURS[name](server, asked, **arguments)


MISBEHAVIOURS: dict[str, Callable[..., Awaitable[None]]] = {
    each.__name__: each
    for each in (
        *(result, evil_http.pages, evil_http.echo, evil_http.error, evil_http.frame),
        *(evil_http.say, evil_http.mute, evil_http.progress, leave, anything),
    )
}


def script(seed: int) -> Iterator[tuple[str, Json]]:
    """Yield random misbehaviours with their arguments without end; half are correct answers."""
    chance = random.Random(seed)
    nonsense = ["\xff", "[]", '{"jsonrpc":"2.0","id":99,"result":{}}', '{"jsonrpc":"2.0","id":']
    while True:
        yield chance.choice(
            [
                *[("echo", {"text": "hi"})] * 5,
                ("say", {"lines": nonsense}),
                ("say", {"lines": ['{"jsonrpc":"2.0","id":$ID,"result":3}']}),
                ("mute", {}),
                ("error", {"code": chance.randint(-33_000, 0)}),
                ("frame", {"size": int(10 ** chance.uniform(3, 7.3))}),  # sometimes over the limit
                *[("leave", {})] * (chance.random() < 0.1),
            ]
        )


class EvilMemory:
    """A misbehaving server in this process; pass it to `Client.memory`.

    Attributes:
        form: Tells shared misbehaviours that an answer may have several messages.
        asked: All received messages, in order.
        tools: The tools that it lists.
    """

    form = "stream"

    def __init__(self, revision: str = MODERN, *, seed: int = 0) -> None:
        self.revision = revision
        self.asked: list[Asked] = []
        self.tools = [{"name": name, "inputSchema": {"type": "object"}} for name in MISBEHAVIOURS]
        self.script = script(seed)
        self._told: dict[str, tuple[str, Json]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self) -> MemoryTransport:
        """Return the client's end of a new connection."""
        ours, theirs = MemoryTransport.pair()
        self._start(ours.open(_Receiver(self, ours)))
        return theirs

    def tell(self, method: str, misbehaviour: str, **arguments: Any) -> None:
        """Misbehave at all requests of a method."""
        self._told[method] = (misbehaviour, arguments)

    def behave(self) -> None:
        """Answer correctly again."""
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
    """One received message, and the connection to answer on."""

    old = None

    def __init__(self, transport: MemoryTransport, gone: asyncio.Event, frame: bytes) -> None:
        self.message: Json = json.loads(frame)
        self.gone = gone
        self.transport = transport

    @property
    def method(self) -> str:
        return self.message.get("method", "answer")

    @property
    def id(self) -> str:
        return json.dumps(self.message.get("id"))

    async def send(self, form: str, *frames: bytes) -> None:
        self.transport.send(list(frames))


class _Receiver:
    def __init__(self, server: EvilMemory, transport: MemoryTransport) -> None:
        self._server = server
        self._transport = transport
        self._gone = asyncio.Event()

    def frames_received(self, frames: list[bytes], request: object = None) -> None:
        for frame in frames:
            self._server.take(_MemoryAsked(self._transport, self._gone, frame))

    async def settle(self, timeout: float) -> None:
        pass

    def connection_lost(self, error: InterlockError) -> None:
        self._gone.set()
