"""A connection between two peers in one event loop, without process or network."""

from __future__ import annotations

import asyncio

from interlock.errors import ConnectionClosed, InterlockError, MessageTooLarge
from interlock.transports import MAX_FRAME_BYTES, Receiver
from interlock.types import RequestId

END_PATIENCE = 5.0  # seconds that `close` waits for the server, as for a program


class MemoryTransport:
    """One end of an in-process connection, which delivers frames in order.

    Frames from the server are delivered at once, because they only wake waiting tasks. Frames from
    the client start handlers, so they are delivered in the next turn of the event loop.

    Attributes:
        serving: The task that serves the other end; `close` waits until it has ended, so that the
            server's lifespan is exited. None if no task serves it.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, *, is_server: bool = False) -> None:
        self._is_server = is_server
        self._max_frame_bytes = max_frame_bytes
        self._other: MemoryTransport
        self._receiver: Receiver | None = None
        self._early: list[bytes] = []  # received before `open`
        self._closed = False
        self.serving: asyncio.Task[None] | None = None

    @classmethod
    def pair(
        cls, max_frame_bytes: int = MAX_FRAME_BYTES
    ) -> tuple[MemoryTransport, MemoryTransport]:
        """Return the server's end and the client's end; a frame over the limit ends both."""
        server, client = cls(max_frame_bytes, is_server=True), cls(max_frame_bytes)
        server._other, client._other = client, server
        return server, client

    @property
    def peer(self) -> Receiver | None:
        """The other end's receiver; None until the other end is open."""
        return self._other._receiver

    async def open(self, receiver: Receiver) -> None:
        """Begin to receive, and deliver the frames that arrived before this call.

        Raises:
            ConnectionClosed: The other end has been closed.
        """
        if self._closed:
            raise ConnectionClosed("the other end is closed")
        self._receiver = receiver
        early, self._early = self._early, []
        if early:
            receiver.frames_received(early)

    def send(self, frames: list[bytes]) -> None:
        if self._closed:
            return
        if self._is_server:
            self._other._deliver(frames)
        else:
            asyncio.get_running_loop().call_soon(self._other._deliver, frames)

    def _end_other(self) -> None:
        self._closed = True
        if self._is_server:
            self._other._end()
        else:
            asyncio.get_running_loop().call_soon(self._other._end)

    def forget(self, id: RequestId) -> None:
        """Do nothing: a late response is dropped."""

    def diagnostics(self) -> str:
        return ""

    def abort(self, error: InterlockError) -> None:
        if self._closed:
            return
        self._end_other()
        if self._receiver is not None:
            self._receiver.connection_lost(error)

    async def close(self) -> None:
        if not self._closed:
            self._end_other()
        if self.serving is not None:
            await asyncio.wait({self.serving}, timeout=END_PATIENCE)

    def _deliver(self, frames: list[bytes]) -> None:
        if self._closed:
            return
        try:
            if (longest := max(map(len, frames), default=0)) > self._max_frame_bytes:
                size, limit = longest / 2**20, self._max_frame_bytes / 2**20
                words = f"message of {size:.1f} MiB (limit {limit:g} MiB)"
                self.abort(MessageTooLarge(words))
            elif self._receiver is None:
                self._early += frames
            else:
                self._receiver.frames_received(frames)
        except MemoryError:
            self.abort(ConnectionClosed("out of memory while receiving from the other end"))

    def _end(self) -> None:
        if not self._closed:
            self._closed = True
            if self._receiver is not None:
                self._receiver.connection_lost(
                    ConnectionClosed("the other end closed the connection")
                )
