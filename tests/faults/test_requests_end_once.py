"""R-01: every request ends exactly once, and no request stays pending.

Requests are started, answered, answered wrongly, cancelled, timed out and cut off in any order.
After each step a model predicts which requests have ended, and how. The clock is simulated.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from interlock import connection
from interlock.connection import Connection
from interlock.errors import (
    ConnectionClosed,
    InterlockError,
    ParseError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
)
from interlock.protocol import Protocol, Request, RequestOptions
from interlock.transports import Receiver

NEVER = float("inf")

# Possible answers to a request, and the outcome of each.
ANSWERS: dict[str, object] = {
    '{"jsonrpc":"2.0","id":$ID,"result":{"a":1}}': {"a": 1},
    '{"id":$ID,"result":[],"jsonrpc":"2.0" }': [],
    '{"jsonrpc":"2.0","id":$ID,"error":{"code":-1,"message":"no"}}': RemoteError,
    '{"jsonrpc":"2.0","id":$ID,"error":{"code":"x"}}': RemoteProtocolError,
    '{"jsonrpc":"2.0","id":$ID,"error":null}': RemoteProtocolError,
    '{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":""}}': RemoteProtocolError,
    '{"jsonrpc":"2.0","id":$ID}': RemoteProtocolError,
    '{"jsonrpc":"2.0","id":$ID,"result":{"a":NaN}}': ParseError,
    '{"jsonrpc":"2.0","id":$ID,"result":' + "[" * 70 + "]" * 70 + "}": ParseError,
    '{"jsonrpc":"2.0","id":$ID,"result":1,"result":2}': ParseError,
}

# Frames that end no request.
NOISE = [
    b"",
    b"hello",
    b"\xff\xfe",
    b"[]",
    b"null",
    b"{}",
    b"[" * 100_000,
    b'{"jsonrpc":"2.0","id":007,"result":{}}',
    b'{"jsonrpc":"2.0","id":null,"result":{}}',
    b'{"jsonrpc":"2.0","id":true,"result":{}}',
    b'{"jsonrpc":"2.0","id":1.5,"result":{}}',
    b'{"jsonrpc":"2.0","id":"01","result":{}}',
    b'{"jsonrpc":"2.0","id":999999,"result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":[]}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":3}',
    b'{"jsonrpc":"2.0","method":"notifications/message"}',
]


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time is set by the test."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Wire:
    """A transport without a peer, which records sent frames."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.receiver: Receiver

    async def open(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def send(self, frames: list[bytes]) -> None:
        self.sent += map(json.loads, frames)

    def forget(self, id: object) -> None:
        pass

    async def close(self) -> None:
        pass


class Asked:
    """The model of one request."""

    def __init__(self, task: asyncio.Task[Any], timeout: float, hard: float, now: float) -> None:
        self.task = task
        self.timeout = timeout
        self.idle_end = now + timeout
        self.hard_end = now + hard
        self.progress = -NEVER
        self.ends: tuple[object, ...] = ()  # possible outcomes; empty while it is open


class Requests(RuleBasedStateMachine):
    """Random operations on one connection, checked against a model."""

    @initialize()
    def open(self) -> None:
        self.loop = Clock()
        self.reported: list[object] = []
        self.loop.set_exception_handler(lambda _, context: self.reported.append(context))
        self.time = mock.patch.object(connection, "monotonic", self.loop.time)
        self.time.start()
        self.wire = Wire()
        self.asked: dict[int, Asked] = {}
        self.lost = 0
        self.closed = False
        self.connection = self.loop.run_until_complete(self._open())

    async def _open(self) -> Connection:
        made = Connection(
            Protocol(),
            self.wire,
            on_request=self._never_answer,
            on_notification=lambda _: None,
            on_loss=self._count_loss,
        )
        await made.open()
        return made

    async def _never_answer(self, request: Request) -> None:
        await asyncio.Event().wait()

    def _count_loss(self, error: InterlockError) -> None:
        self.lost += 1

    def _turn(self) -> None:
        async def turns() -> None:
            for _ in range(6):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    def _receive(self, *frames: bytes) -> None:
        self.loop.call_soon(self.wire.receiver.frames_received, list(frames))

    def _end(self, id: int, *ends: object) -> None:
        if not self.asked[id].ends:
            self.asked[id].ends = ends

    def _end_all(self) -> None:
        self.closed = True
        for id in self.asked:
            self._end(id, ConnectionClosed)

    # Operations

    @rule(timeout=st.sampled_from([1.0, 3.0, NEVER]), hard=st.sampled_from([2.0, 6.0]))
    def ask(self, timeout: float, hard: float) -> None:
        coroutine = self.connection.request(
            "x",
            options=RequestOptions(None if timeout == NEVER else timeout, hard, lambda _: None),
        )
        task = self.loop.create_task(coroutine)
        self._turn()
        id = len(self.asked) + 1
        self.asked[id] = Asked(task, timeout, hard, self.loop.now)
        if self.closed:
            self._end(id, ConnectionClosed)
        else:
            assert self.wire.sent[-1]["id"] == id

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), answer=st.sampled_from(sorted(ANSWERS)), cancel=st.booleans())
    def answer(self, data: st.DataObject, answer: str, cancel: bool) -> None:
        """Answer a request twice, even if it has ended; it may be cancelled at the same time."""
        id = data.draw(st.sampled_from(sorted(self.asked)))
        frame = answer.replace("$ID", str(id)).encode()
        self._receive(frame, frame)
        ends = [ANSWERS[answer]]
        if cancel:
            self.loop.call_soon(self.asked[id].task.cancel)
            ends.append(asyncio.CancelledError)
        self._turn()
        self._end(id, *ends)

    @rule(frame=st.sampled_from(NOISE))
    def noise(self, frame: bytes) -> None:
        self._receive(frame)
        self._turn()

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), value=st.integers(0, 5))
    def progress(self, data: st.DataObject, value: int) -> None:
        id = data.draw(st.sampled_from(sorted(self.asked)))
        params = b'{"progressToken":%d,"progress":%d}' % (id, value)
        self._receive(b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % params)
        self._turn()
        asked = self.asked[id]
        if value > asked.progress and not asked.ends:
            asked.progress = value
            asked.idle_end = self.loop.now + asked.timeout

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.asked)))
        was_open = not self.asked[id].ends
        self.asked[id].task.cancel()
        self._turn()
        self._end(id, asyncio.CancelledError)
        if was_open:
            assert self.wire.sent[-1]["method"] == "notifications/cancelled"
            assert self.wire.sent[-1]["params"]["requestId"] == id

    @rule(id=st.integers(1, 3))
    def receive_request(self, id: int) -> None:
        self._receive(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % id)
        self._turn()

    @rule(id=st.integers(1, 3))
    def receive_cancellation(self, id: int) -> None:
        params = b'{"requestId":%d}' % id
        self._receive(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%b}' % params)
        self._turn()

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.5]))
    def wait(self, seconds: float) -> None:
        self.loop.now += seconds
        self._turn()
        for id, asked in self.asked.items():
            if min(asked.idle_end, asked.hard_end) <= self.loop.now:
                self._end(id, RequestTimeout)

    @precondition(lambda self: len(self.asked) >= 5)
    @rule(frame=st.sampled_from(sorted(ANSWERS)))
    def lose(self, frame: str) -> None:
        """Lose the connection in the middle of a frame."""
        if not self.closed:
            self._receive(frame.replace("$ID", "424242").encode()[:-5])
            self.loop.call_soon(self.connection.connection_lost, ConnectionClosed("cut"))
        self._turn()
        self._end_all()

    @precondition(lambda self: len(self.asked) >= 5)
    @rule()
    def close(self) -> None:
        self.loop.run_until_complete(self.connection.close())
        self._turn()
        self._end_all()

    # Invariants

    @invariant()
    def each_request_has_a_predicted_outcome(self) -> None:
        for id, asked in getattr(self, "asked", {}).items():
            assert asked.task.done() == bool(asked.ends), id
            if asked.ends:
                assert _outcome(asked.task) in asked.ends, id

    @invariant()
    def only_open_requests_are_kept(self) -> None:
        if hasattr(self, "connection"):
            still_open = sum(not asked.ends for asked in self.asked.values())
            assert self.connection.protocol.pending == still_open
            assert len(self.connection._waiting) == len(self.connection._progress) == still_open
            assert self.lost <= 1
            assert self.reported == []

    def teardown(self) -> None:
        if not hasattr(self, "connection"):
            return
        self.close()
        self.each_request_has_a_predicted_outcome()
        self.only_open_requests_are_kept()
        assert self.connection._handlers == set()
        assert asyncio.all_tasks(self.loop) == set()
        self.loop.close()
        self.time.stop()


def _outcome(task: asyncio.Task[Any]) -> object:
    if task.cancelled():
        return asyncio.CancelledError
    error = task.exception()
    return type(error) if error is not None else json.loads(bytes(task.result()))


TestRequests = pytest.mark.slow("a state machine")(Requests.TestCase)
TestRequests.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, derandomize=True, database=None
)
