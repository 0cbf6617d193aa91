"""Two connections back to back: what waits, what runs, and what is left when they end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from interlock import connection
from interlock.connection import Connection
from interlock.errors import ConnectionClosed, InterlockError, RemoteError, RequestTimeout
from interlock.protocol import Notification, Progress, Protocol, Request, RequestOptions, core
from interlock.protocol.core import GARBAGE_SHARE, MAX_GARBAGE
from interlock.text.redaction import Redactor
from interlock.transports.memory import MemoryTransport
from interlock.transports.trace import Note, TracedTransport
from tests.support.rows import each_row


class Side:
    """One of the two, and what it was told."""

    def __init__(self, transport: MemoryTransport) -> None:
        self.notifications: list[Notification] = []
        self.losses: list[InterlockError] = []
        self.requests: asyncio.Queue[Request] = asyncio.Queue()
        self.answer: Callable[[Request], Any] = self.never
        self.stopped: list[object] = []
        self.reasons: list[str] = []  # for which the peer cancelled them
        self.connection = Connection(
            Protocol(),
            transport,
            on_request=self.on_request,
            on_notification=self.notifications.append,
            on_loss=self.losses.append,
        )

    async def on_request(self, request: Request) -> None:
        self.requests.put_nowait(request)
        try:
            result = await self.answer(request)
        except asyncio.CancelledError as cancelled:
            self.stopped.append(request.id)
            self.reasons.append(connection.cancel_reason(cancelled))
            raise
        self.connection.protocol.reply(request.id, result)
        self.connection.flush()

    async def never(self, _: Request) -> bytes:
        return await asyncio.get_running_loop().create_future()

    async def echo(self, request: Request) -> bytes:
        return bytes(request.params)

    async def ask(self, params: bytes = b'{"a":1}', **options: Any) -> Raw:
        return await self.connection.request("x", params, RequestOptions(**options))


@asynccontextmanager
async def two() -> AsyncIterator[tuple[Side, Side]]:
    """Open both ends; close them afterwards."""
    sides = [Side(transport) for transport in MemoryTransport.pair()]
    for side in sides:
        await side.connection.open()
    yield sides[0], sides[1]
    for side in sides:
        await side.connection.close()
    await asyncio.sleep(0)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# Requests


async def test_both_sides_send_requests():
    async with two() as (one, other):
        one.answer, other.answer = one.echo, other.echo

        answers = await asyncio.gather(one.ask(b'{"n":1}'), other.ask(b'{"n":2}'))

    assert [bytes(each) for each in answers] == [b'{"n":1}', b'{"n":2}']


async def test_frames_of_one_turn_are_sent_in_order():
    async with two() as (one, other):
        for number in range(5):
            one.connection.notify("n", b'{"n":%d}' % number)
        await settle()

        assert [bytes(each.params) for each in other.notifications] == [
            b'{"n":%d}' % number for number in range(5)
        ]


async def test_frames_of_one_turn_are_sent_in_bursts(monkeypatch: pytest.MonkeyPatch):
    sent: list[int] = []
    async with two() as (one, _):
        send = one.connection.transport.send
        monkeypatch.setattr(
            one.connection.transport,
            "send",
            lambda frames: (sent.append(len(frames)), send(frames)),
        )
        for _ in range(2 * connection.BURST + 3):
            one.connection.notify("x")
        at_once = list(sent)
        await settle()

    # The first does not wait, and the peer has work while the others are still made.
    assert at_once == [1, connection.BURST, connection.BURST]
    assert sent == [*at_once, 2]


async def test_the_future_of_a_request_gets_its_result():
    async with two() as (one, other):
        other.answer = other.echo
        id, future = one.connection.start("x", b'{"a":1}')
        assert bytes(await future) == b'{"a":1}'
        one.connection.forget(id)
        await settle()

        assert other.notifications == []  # there was nothing left to cancel


async def test_error_without_an_id_among_several_requests_is_logged_once(
    caplog: pytest.LogCaptureFixture,
):
    async with two() as (ours, _):
        waiting = [ours.connection.start("x")[1] for _ in range(2)]
        error = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"it broke"}}'
        ours.connection.frames_received([error] * 3)
        assert not any(each.done() for each in waiting)

    text = "the peer sent an error without an id while 2 requests had no answer: it broke (-32603)"
    assert caplog.messages == [text]
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_cancelled_request_stops_the_handler_of_the_other_side():
    async with two() as (one, other):
        asking = asyncio.create_task(one.ask())
        request = await other.requests.get()
        asking.cancel()
        await settle()

        assert asking.cancelled()
        assert other.stopped == [request.id]
        assert other.connection.protocol.running == 0
        assert one.connection.protocol.pending == 0


async def test_a_handler_is_stopped_by_an_id_of_the_same_type():
    async with two() as (one, other):
        for id in (b"1", b'"1"'):
            one.connection.transport.send([b'{"jsonrpc":"2.0","id":%b,"method":"x"}' % id])
            await other.requests.get()
        one.connection.notify("notifications/cancelled", b'{"requestId":"1"}')
        await settle()

        assert other.stopped == ["1"]


@each_row("told", ["result", "error"])
async def test_response_that_crosses_its_cancellation_is_dropped(told: str):
    async with two() as (one, other):
        asking = asyncio.create_task(one.ask())
        request = await other.requests.get()
        asking.cancel()
        frame = b'{"jsonrpc":"2.0","id":%d,"%b":{"code":1,"message":"no"}}'
        one.connection.frames_received([frame % (request.id, told.encode())])
        await asyncio.wait({asking})

        assert asking.cancelled()
        assert one.connection.protocol.pending == 0


async def test_cancel_reason_of_the_peer_is_passed_to_the_handler_and_its_own_requests():
    async with two() as (one, two_), two() as (three, four):

        async def forward(request: Request) -> bytes:
            return bytes(await three.connection.request("y", bytes(request.params)))

        two_.answer = forward
        id, _ = one.connection.start("x")
        await four.requests.get()
        one.connection.forget(id, "no longer needed")
        await settle()
    assert two_.reasons == four.reasons == ["no longer needed"]


async def test_a_request_that_is_forgotten_is_cancelled():
    async with two() as (one, other):
        id, future = one.connection.start("x", b"{}")
        await other.requests.get()
        one.connection.forget(id)
        one.connection.forget(id)
        await settle()

        assert other.stopped == [id]
        assert not future.done()


async def test_an_id_may_be_used_again_as_soon_as_it_was_answered():
    async with two() as (one, other):
        blocked = asyncio.Event()

        async def answer_early(request: Request) -> bytes:
            other.connection.protocol.reply(request.id, b'{"n":1}')
            other.connection.flush()
            await blocked.wait()  # the first handler still runs when the second begins
            return b'{"n":2}'

        other.answer = answer_early
        raw = b'{"jsonrpc":"2.0","id":"same","method":"x"}'
        one.connection.transport.send([raw])
        await other.requests.get()
        one.connection.transport.send([raw])
        await other.requests.get()
        blocked.set()
        await settle()

        assert other.connection.protocol.dropped["reply to unknown request"] == 2
        assert other.connection._handlers == set()


# Calls that a peer in the same program gets without frames


@asynccontextmanager
async def handing_over() -> AsyncIterator[tuple[Side, Side, list[bytes]]]:
    """Open both ends; yield the server, the client and the frames that the client sends."""
    async with two() as (server, client):
        sent: list[bytes] = []
        transport = client.connection.transport
        send = transport.send

        def keep(frames: list[bytes]) -> None:
            sent.extend(frames)
            send(frames)

        transport.send = keep  # type: ignore[method-assign]
        client.connection.hand_over_calls()
        yield server, client, sent


async def call(client: Side, **options: Any) -> Raw:
    return await client.connection.request("tools/call", b'{"a":1}', RequestOptions(**options))


async def test_in_process_call_is_passed_with_its_meta_and_other_requests_are_frames():
    async with handing_over() as (server, client, sent):
        server.answer = server.echo

        answer = await call(client, meta=b'"k":1')
        assert (bytes(answer), sent) == (b'{"_meta":{"k":1},"a":1}', [])
        await client.ask()
        assert len(sent) == 1


class Watcher:
    """Keeps the frames that are sent."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.redactor = Redactor()

    def sent(self, frame: bytes) -> None:
        self.frames.append(frame)

    def received(self, frame: bytes) -> None: ...

    def noted(self, kind: Note, text: str) -> None: ...


async def test_a_call_whose_frames_are_traced_is_a_frame():
    watcher = Watcher()
    async with two() as (server, client):
        server.answer = server.echo
        client.connection.transport = TracedTransport(client.connection.transport, watcher)
        client.connection.hand_over_calls()
        await call(client)

    assert [b'"tools/call"' in each for each in watcher.frames] == [True]


async def test_in_process_call_starts_in_the_next_turn_of_the_event_loop():
    async with handing_over() as (server, client, _):
        client.connection.start("tools/call", b"{}")
        assert server.requests.empty()
        await asyncio.sleep(0)
        assert not server.requests.empty()


@each_row("why", ["forgotten", "timeout"])
async def test_cancelled_in_process_call_stops_its_handler_with_the_reason(why: str):
    async with handing_over() as (server, client, _):
        options = RequestOptions(timeout=0.01 if why == "timeout" else None)
        id, future = client.connection.start("tools/call", b"{}", options)
        await server.requests.get()
        if why == "timeout":
            with pytest.raises(RequestTimeout, match=r"no answer to tools/call within 0\.01 s"):
                await future
        else:
            client.connection.forget(id, why)
        await settle()

        assert (server.stopped, server.reasons) == ([id], [why])
        assert server.connection.protocol.running == client.connection.protocol.pending == 0


async def test_progress_of_an_in_process_call_arrives_before_its_answer():
    async with handing_over() as (server, client, _):

        async def answer(request: Request) -> bytes:
            for step in (1, 2):
                params = b'{"progressToken":%d,"progress":%d}' % (request.id, step)
                server.connection.notify("notifications/progress", params)
            return b"{}"

        server.answer = answer
        steps: list[Progress] = []
        await call(client, progress=steps.append)

        assert [each.progress for each in steps] == [1, 2]


@each_row("who", ["client", "server"])
async def test_in_process_call_ends_with_the_connection(who: str):
    async with handing_over() as (server, client, _):
        calling = asyncio.create_task(call(client))
        await server.requests.get()
        await (client if who == "client" else server).connection.close()
        await settle()

        assert isinstance(calling.exception(), ConnectionClosed)
        assert server.stopped == [1]
        with pytest.raises(ConnectionClosed):
            await call(client)


async def test_a_call_that_is_handed_over_among_too_many_is_refused(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(core, "MAX_RUNNING", 1)
    async with handing_over() as (server, client, _):
        client.connection.start("tools/call", b"{}")

        with pytest.raises(RemoteError, match="over 1 requests at once"):
            await call(client)
        await settle()
        assert server.requests.qsize() == 1


# Time


async def test_requests_without_answer_end_at_their_deadlines():
    async with two() as (one, other):
        outcomes = await asyncio.gather(
            one.ask(timeout=0.02),
            one.ask(timeout=0.01),
            one.ask(hard_timeout=0.015),
            return_exceptions=True,
        )
        await settle()

        assert [type(each) for each in outcomes] == [RequestTimeout] * 3
        assert sorted(map(str, other.stopped)) == ["1", "2", "3"]


async def test_one_timer_serves_all_requests_and_is_cancelled(monkeypatch: pytest.MonkeyPatch):
    async with two() as (one, other):
        other.answer = other.echo
        armed: list[asyncio.TimerHandle] = []
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def count(*arguments: Any, **options: Any) -> asyncio.TimerHandle:
            armed.append(call_later(*arguments, **options))
            return armed[-1]

        monkeypatch.setattr(loop, "call_later", count)
        await asyncio.gather(*(one.ask(timeout=60.0) for _ in range(100)))
        assert len(armed) == 1
        await one.ask(timeout=30.0)
        assert [each.cancelled() for each in armed] == [True, False]
        await one.connection.close()
        assert [each.cancelled() for each in armed] == [True, True]


async def test_hard_timeout_applies_without_another_timeout():
    async with two() as (one, _):
        with pytest.raises(RequestTimeout, match="hard limit"):
            await one.ask(hard_timeout=0.01)


async def test_transport_forgets_ended_requests(
    monkeypatch: pytest.MonkeyPatch,
):
    async with two() as (one, other):
        forgotten: list[object] = []
        monkeypatch.setattr(one.connection.transport, "forget", forgotten.append)
        cancelled = asyncio.create_task(one.ask())
        request = await other.requests.get()
        cancelled.cancel()
        await asyncio.wait({cancelled})
        assert forgotten == [request.id]

        with pytest.raises(RequestTimeout):
            await one.ask(timeout=0.01)
        assert forgotten == [request.id, (await other.requests.get()).id]

        other.answer = other.echo
        await one.ask()
        assert len(forgotten) == 2


async def test_progress_keeps_a_request_alive(monkeypatch: pytest.MonkeyPatch):
    now = 1_000.0
    monkeypatch.setattr(connection, "monotonic", lambda: now)
    async with two() as (one, other):
        steps: list[Progress] = []
        asking = asyncio.create_task(one.ask(timeout=5.0, progress=steps.append))
        request = await other.requests.get()
        for step in range(1, 4):
            now += 4.0
            params = b'{"progressToken":%d,"progress":%d}' % (request.id, step)
            other.connection.notify("notifications/progress", params)
            await settle()
            one.connection._expire()
            await settle()
            assert not asking.done()
        now += 5.0
        one.connection._expire()
        with pytest.raises(RequestTimeout):
            await asking
        assert [step.progress for step in steps] == [1, 2, 3]


async def test_progress_handler_is_removed_with_its_request():
    async with two() as (one, other):
        other.answer = other.echo
        await one.ask(progress=lambda _: None)
        asking = asyncio.create_task(one.ask(progress=lambda _: None))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})

        assert not one.connection._progress


# Failing


async def test_remote_error_is_raised_in_the_waiting_task():
    async with two() as (one, other):

        async def refuse(request: Request) -> bytes:
            other.connection.protocol.reply_error(request.id, -32601, "no")
            return b"{}"

        other.answer = refuse
        with pytest.raises(RemoteError, match="no"):
            await one.ask()


async def test_endless_garbage_ends_the_connection():
    async with two() as (one, other):
        asking = asyncio.create_task(one.ask())
        await other.requests.get()
        other.connection.transport.send([b"hello" * 1_000] * (MAX_GARBAGE // 5_000))

        with pytest.raises(InterlockError, match="malformed messages"):
            await asking
        assert len(one.losses) == 1
        await settle()
        assert len(other.losses) == 1


async def test_failing_loss_handler_is_reported_to_the_event_loop():
    reported: list[Any] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))

    def fail(_: InterlockError) -> None:
        raise RuntimeError("a bug of the user")

    async with two() as (one, _):
        one.connection._on_loss = fail
        one.connection.abort(ConnectionClosed("enough"))
    loop.set_exception_handler(before)

    assert [str(error) for error in reported] == ["a bug of the user"]


# Closing


@each_row("who", ["we", "they", "abort"])
async def test_loss_fails_requests_and_cancels_handlers(who: str):
    async with two() as (one, other):
        ours = [asyncio.create_task(one.ask()) for _ in range(3)]
        theirs = asyncio.create_task(other.ask())
        await one.requests.get()
        for _ in ours:
            await other.requests.get()
        if who == "abort":
            one.connection.abort(ConnectionClosed("enough"))
        else:
            await (one if who == "we" else other).connection.close()

        for outcome in await asyncio.gather(*ours, theirs, return_exceptions=True):
            assert isinstance(outcome, ConnectionClosed)
        await settle()
        assert len(one.stopped) == 1
        assert len(other.stopped) == 3
        assert (len(one.losses), len(other.losses)) == {
            "we": (0, 1),
            "they": (1, 0),
            "abort": (1, 1),
        }[who]


async def test_each_waiter_gets_its_own_copy_of_the_error():
    async with two() as (one, other):
        asking = [asyncio.create_task(one.ask()) for _ in range(2)]
        await other.requests.get()
        one.connection.abort(ConnectionClosed("enough"))
        first, second = await asyncio.gather(*asking, return_exceptions=True)

    assert str(first) == str(second) == "enough"
    assert first is not second


async def test_messages_sent_before_close_are_received():
    async with two() as (one, other):
        one.connection.notify("first")
        one.connection.notify("last")
        await one.connection.close()
        await settle()

        assert [each.method for each in other.notifications] == ["first", "last"]
        assert len(other.losses) == 1


async def test_request_after_the_end_raises():
    async with two() as (one, _):
        await one.connection.close()
        await one.connection.close()

        with pytest.raises(ConnectionClosed):
            await one.ask()
        one.connection.notify("n")
        await settle()


async def test_a_handler_may_close_its_own_connection():
    async with two() as (one, other):
        done = asyncio.Event()

        async def close(_: Request) -> bytes:
            await other.connection.close()
            await asyncio.sleep(0)
            done.set()
            return b"{}"

        other.answer = close
        with pytest.raises(ConnectionClosed):
            await one.ask()
        await done.wait()
        assert other.stopped == []


async def test_any_task_may_call_cancel_and_close():
    chance = random.Random(1)  # the same in every run
    for _ in range(100):
        async with two() as (one, other):
            other.answer = other.echo if chance.random() < 0.5 else other.never
            asking = [asyncio.create_task(one.ask()) for _ in range(5)]
            for _ in range(chance.randrange(8)):
                if chance.random() < 0.5:
                    chance.choice(asking).cancel()
                await asyncio.sleep(0)
            await asyncio.create_task(chance.choice([one, other]).connection.close())

            for outcome in await asyncio.gather(*asking, return_exceptions=True):
                assert isinstance(outcome, Raw | ConnectionClosed | asyncio.CancelledError)
            assert one.connection.protocol.pending == 0


async def test_memory_error_while_sending_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
):
    async with two() as (one, _):

        def send(frames: list[bytes]) -> None:
            raise MemoryError

        waiting = asyncio.create_task(one.ask())
        await asyncio.sleep(0)
        monkeypatch.setattr(one.connection.transport, "send", send)
        for asking in (one.ask(), waiting, one.ask()):
            with pytest.raises(ConnectionClosed, match="out of memory while sending"):
                await asking


async def test_request_lost_by_a_memory_error_fails_with_the_connection(
    monkeypatch: pytest.MonkeyPatch,
):
    async with two() as (one, other):
        other.answer = other.echo

        def receive(*_: object, **__: object) -> None:
            one.connection.protocol._pending.clear()
            raise MemoryError

        monkeypatch.setattr(one.connection.protocol, "receive", receive)
        with pytest.raises(ConnectionClosed, match="out of memory while receiving"):
            await one.ask()


async def test_request_that_could_not_be_started_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    async with two() as (one, _):

        def arm() -> None:
            raise MemoryError

        monkeypatch.setattr(one.connection, "_arm", arm)
        with pytest.raises(MemoryError):
            await one.ask(timeout=5.0)
        assert one.connection._waiting == {}
        assert one.connection.protocol.pending == 0
        monkeypatch.undo()


async def test_no_request_of_a_batch_begins_after_too_many_malformed_messages():
    server, client = MemoryTransport.pair()
    begun: list[object] = []
    lost: list[InterlockError] = []

    async def answer(request: Request) -> None:
        begun.append(request.id)

    connection = Connection(
        Protocol(batches=True),
        server,
        on_request=answer,
        on_notification=lambda _: None,
        on_loss=lost.append,
    )
    await connection.open()
    connection.frames_received([b"?" * GARBAGE_SHARE] * 100)
    connection.frames_received([b'[1,{"jsonrpc":"2.0","id":1,"method":"ping"}]'])
    await asyncio.sleep(0)
    await client.close()

    assert (begun, len(lost)) == ([], 1)
