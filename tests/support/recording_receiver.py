"""Who a transport tells, without a client around it."""

from __future__ import annotations

from interlock.errors import InterlockError
from interlock.protocol import Protocol, RequestOptions
from interlock.types import RequestId


def request_frame(method: str, meta: bytes = b"", id: int = 1) -> bytes:
    """Encode a request with number `id` as a protocol hands it to its transport."""
    protocol = Protocol(meta=meta)
    for _ in range(id):
        protocol.request(method, now=0.0)
    return protocol.frames_to_send()[-1]


def call_frame(tool: str) -> bytes:
    """Encode a first request: a call of a tool without arguments."""
    protocol = Protocol()
    params = b'{"name":"%b"}' % tool.encode()
    protocol.request("tools/call", params, RequestOptions(name=tool), now=0.0)
    return protocol.frames_to_send()[0]


class RecordingReceiver:
    """Keeps what it is told. A request is answered by the first frame that comes for it.

    Args:
        awaited: Ids of requests that wait for an answer.
    """

    def __init__(self, *awaited: RequestId) -> None:
        self.awaited = set(awaited)
        self.frames: list[bytes] = []
        self.failures: list[InterlockError] = []
        self.losses: list[InterlockError] = []

    def frames_received(self, frames: list[bytes], request: RequestId | None = None) -> None:
        self.frames += frames
        self.awaited.discard(request or "")

    def awaits(self, id: RequestId) -> bool:
        return id in self.awaited

    def request_failed(self, id: RequestId, error: InterlockError) -> None:
        self.failures.append(error)

    async def settle(self, timeout: float) -> None:
        pass

    def connection_lost(self, error: InterlockError) -> None:
        self.losses.append(error)
