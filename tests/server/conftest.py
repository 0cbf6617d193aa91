"""A client of raw JSON messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from interlock import Server
from interlock.errors import InterlockError
from interlock.transports import Transport

Message = dict[str, Any]


class Wire:
    """The client's end of a memory connection."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.received: asyncio.Queue[Any] = asyncio.Queue()
        self.lost: InterlockError | None = None
        self._last_id = 0

    def frames_received(self, frames: list[bytes], request: object = None) -> None:
        for frame in frames:
            self.received.put_nowait(json.loads(frame))

    async def settle(self, timeout: float) -> None:
        pass

    def connection_lost(self, error: InterlockError) -> None:
        self.lost = error

    def send(self, *messages: Any) -> None:
        self.transport.send(
            [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
        )

    async def receive(self) -> Any:
        return await self.received.get()

    def ask(self, method: str, params: Message | None = None, id: Any = None) -> Any:
        """Send a request and return its id."""
        self._last_id += 1
        id = self._last_id if id is None else id
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        self.send(message if params is None else {**message, "params": params})
        return id

    async def call(self, method: str, params: Message | None = None) -> Message:
        """Send a request and wait for its answer: the next message."""
        id = self.ask(method, params)
        answer: Message = await self.receive()
        assert answer["id"] == id
        return answer

    async def modern(self, method: str, params: Message | None = None, **meta: Any) -> Message:
        """As `call`, in the modern era. `meta`: see `modern_meta`."""
        return await self.call(method, {**(params or {}), "_meta": modern_meta(**meta)})

    async def initialize(
        self, revision: str = "2025-11-25", capabilities: Message | None = None
    ) -> Message:
        """Open a legacy session."""
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "wire", "version": "1"},
        }
        answer = await self.call("initialize", params)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        result: Message = answer["result"]
        return result

    async def tool(self, name: str, revision: str, **arguments: Any) -> Message:
        """Call a tool in a revision (whose session is open) and return the result."""
        params = {"name": name, "arguments": arguments}
        modern = revision == "2026-07-28"
        answer = await (self.modern if modern else self.call)("tools/call", params)
        result: Message = answer["result"]
        return result


def modern_meta(
    capabilities: Message | None = None, revision: str = "2026-07-28", **more: Any
) -> Message:
    """Return the `_meta` of a modern request; `more` may have `log_level` and `progressToken`."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
    }
    if "log_level" in more:
        meta["io.modelcontextprotocol/logLevel"] = more.pop("log_level")
    return {**meta, **more}


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[Server], Any]]:
    """Connect raw clients to servers."""
    open_wires: list[Wire] = []

    async def connect(server: Server) -> Wire:
        wire = Wire(server.connect())
        await wire.transport.open(wire)
        open_wires.append(wire)
        return wire

    yield connect
    for wire in open_wires:
        await wire.transport.close()


@pytest.fixture
def meta() -> Callable[..., Message]:
    return modern_meta
