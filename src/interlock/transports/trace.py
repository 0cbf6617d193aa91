"""Traces: records of a connection's frames and events, for people who debug it.

Tracing costs nothing on a connection without a trace.
"""

from __future__ import annotations

from typing import Literal, Protocol

from interlock.errors import InterlockError
from interlock.text.redaction import Redactor
from interlock.transports.transport import Receiver, Transport
from interlock.types import RequestId

Note = Literal["spawn", "stderr", "exit", "http", "lost"]


class Trace(Protocol):
    """Records frames and events. Its methods run in the event loop and must not block.

    Attributes:
        redactor: Removes the server's secrets, which frames and notes contain.
    """

    redactor: Redactor

    def sent(self, frame: bytes) -> None: ...

    def received(self, frame: bytes) -> None:
        """Record a frame that has arrived, even if it is not valid."""
        ...

    def noted(self, kind: Note, text: str) -> None:
        """Record an event that is not a message.

        Args:
            kind: The kind of event: a program was started, wrote to stderr or exited; an HTTP
                request was answered; or the connection ended by itself.
            text: The command, the output, the headers or the error.
        """
        ...


class TracedTransport:
    """A transport that records the frames of another transport in a trace."""

    def __init__(self, transport: Transport, trace: Trace) -> None:
        self._transport = transport
        self._trace = trace

    async def open(self, receiver: Receiver) -> None:
        await self._transport.open(_TracedReceiver(receiver, self._trace))

    def send(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._trace.sent(frame)
        self._transport.send(frames)

    def forget(self, id: RequestId) -> None:
        self._transport.forget(id)

    def diagnostics(self) -> str:
        return self._transport.diagnostics()

    def abort(self, error: InterlockError) -> None:
        self._transport.abort(error)

    async def close(self) -> None:
        await self._transport.close()


class _TracedReceiver:
    def __init__(self, receiver: Receiver, trace: Trace) -> None:
        self._receiver = receiver
        self._trace = trace

    def frames_received(self, frames: list[bytes], request: RequestId | None = None) -> None:
        for frame in frames:
            self._trace.received(frame)
        self._receiver.frames_received(frames, request)

    def awaits(self, id: RequestId) -> bool:
        return self._receiver.awaits(id)

    def request_failed(self, id: RequestId, error: InterlockError) -> None:
        self._receiver.request_failed(id, error)

    async def settle(self, timeout: float) -> None:
        await self._receiver.settle(timeout)

    def connection_lost(self, error: InterlockError) -> None:
        self._trace.noted("lost", str(error))
        self._receiver.connection_lost(error)
