"""A transport that records what is sent, and whose peer is a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

from interlock.errors import InterlockError
from interlock.transports import Receiver
from interlock.types import RequestId

Json = dict[str, Any]
Script = Callable[[Json], Iterator[Json]]


class RecordingTransport:
    """One connection to a scripted server.

    Args:
        script: Yields the messages that a request causes, the answer among them, one each turn
            of the event loop.
        turns: How many turns of the loop it takes to open, and to close.

    Attributes:
        sent: What the client sent.
        forgotten: Requests that the client no longer waits for.
        unanswered: Requests that the script has not answered.
        mute: Messages of the server are lost from now on.
        ended: No more messages arrive.
        closed: The client has waited for the end.
    """

    def __init__(self, script: Script, turns: int = 2) -> None:
        self.sent: list[Json] = []
        self.forgotten: list[RequestId] = []
        self.unanswered: dict[RequestId, str] = {}
        self.mute = self.ended = self.closed = False
        self._script = script
        self._turns = turns
        self._why: InterlockError | None = None
        self._receiver: Receiver | None = None

    # As the client sees it

    async def open(self, receiver: Receiver) -> None:
        for _ in range(self._turns):
            await asyncio.sleep(0)
        if self._why is not None:
            raise self._why
        self._receiver = receiver

    def send(self, frames: list[bytes]) -> None:
        for message in map(json.loads, frames):
            self.sent.append(message)
            if {"id", "method"} <= message.keys():
                self.unanswered[message["id"]] = message["method"]
            if "method" in message:
                # Two turns, so that something else can come before the first answer.
                asyncio.get_running_loop().call_soon(self._go_on, self._script(message))

    def forget(self, id: RequestId) -> None:
        self.forgotten.append(id)

    def diagnostics(self) -> str:
        return ""

    def abort(self, error: InterlockError) -> None:
        if not self.ended:
            self.ended = True
            self._why = error
            if self._receiver is not None:
                self._receiver.connection_lost(error)

    async def close(self) -> None:
        self.ended = True
        for _ in range(self._turns):
            await asyncio.sleep(0)
        self.closed = True

    # As the server sees it

    def _go_on(self, messages: Iterator[Json]) -> None:
        asyncio.get_running_loop().call_soon(self._say_next, messages)

    def _say_next(self, messages: Iterator[Json]) -> None:
        message = next(messages, None)
        if message is not None:
            self.say(message)
            self._go_on(messages)

    def say(self, *messages: Json | bytes) -> None:
        """Send messages from the server, unless the connection has ended."""
        if self._receiver is None or self.ended or self.mute:
            return
        for message in messages:
            is_answer = isinstance(message, dict) and "method" not in message
            if is_answer and type(message.get("id")) is int:  # 1.0 answers no request 1
                self.unanswered.pop(message["id"], None)
        self._receiver.frames_received(
            [each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages]
        )

    def fail(self, id: RequestId, error: InterlockError) -> None:
        """Fail a request without an answer, as when its HTTP response is cut off."""
        if self._receiver is not None and not self.ended:
            self.unanswered.pop(id, None)
            self._receiver.request_failed(id, error)

    def cancelled(self) -> list[RequestId]:
        """Return the requests that the client has cancelled."""
        told = [each for each in self.sent if each.get("method") == "notifications/cancelled"]
        return [each["params"]["requestId"] for each in told]
