"""Streams by which a modern server tells of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from interlock.client import Client, subscriptions
from interlock.client.subscriptions import Subscriptions
from interlock.errors import ConnectionClosed, RemoteError, RequestTimeout
from interlock.types import SubscriptionFilter
from tests.support.rows import each_row
from tests.support.scripted_server import MODERN, SUBSCRIPTION_KEY, Json, ScriptedServer

LISTEN = "subscriptions/listen"
WANTED = SubscriptionFilter(tools_list_changed=True)


class Listener(ScriptedServer):
    """A server that acknowledges a subscription stream only when a test calls `acknowledge`."""

    def __init__(self) -> None:
        super().__init__(MODERN, {LISTEN: lambda _: None})

    async def listening(self, times: int = 1) -> int:
        """Wait until this many streams were requested; return the id of the last one."""
        await self.heard(LISTEN, times)
        ids = [each["id"] for each in self.received if each.get("method") == LISTEN]
        return ids[times - 1]

    def acknowledge(self, id: object) -> None:
        self.notify(
            "notifications/subscriptions/acknowledged",
            notifications={},
            _meta={SUBSCRIPTION_KEY: id},
        )

    def finish(self, id: int) -> None:
        result = {"resultType": "complete", "_meta": {SUBSCRIPTION_KEY: id}}
        self.send({"jsonrpc": "2.0", "id": id, "result": result})


@pytest.fixture
def server() -> Listener:
    return Listener()


@pytest.fixture
async def client(server: Listener) -> AsyncIterator[Client]:
    async with Client(server.connect, revision=MODERN) as client:
        yield client


@pytest.fixture
def streams(client: Client) -> Subscriptions:
    assert client._messages.subscriptions is not None
    return client._messages.subscriptions


async def opened(server: Listener, streams: Subscriptions, key: str, times: int = 1) -> int:
    opening = asyncio.create_task(streams.open(key, WANTED, timeout=5.0))
    id = await server.listening(times)
    server.acknowledge(id)
    await opening
    return id


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_stream_is_open_once_acknowledged(server: Listener, streams: Subscriptions):
    opening = asyncio.create_task(streams.open("lists", WANTED, timeout=5.0))
    id = await server.listening()
    for other in (str(id), id + 1, None, [id], ""):
        server.acknowledge(other)
    await settle()
    assert not opening.done()

    server.acknowledge(id)
    server.acknowledge(id)
    await opening
    assert server.sent(LISTEN)[0]["notifications"] == {"toolsListChanged": True}


async def test_opening_an_open_stream_sends_nothing(server: Listener, streams: Subscriptions):
    await opened(server, streams, "lists")
    await streams.open("lists", WANTED, timeout=5.0)

    assert len(server.sent(LISTEN)) == 1


async def test_concurrent_opens_of_one_stream_both_wait(server: Listener, streams: Subscriptions):
    opening = [asyncio.create_task(streams.open("lists", WANTED, timeout=5.0)) for _ in range(2)]
    id = await server.listening()
    await settle()
    assert not any(task.done() for task in opening)

    server.acknowledge(id)
    await asyncio.gather(*opening)
    assert len(server.sent(LISTEN)) == 1


async def test_waiting_for_a_stream_that_is_closed_raises(server: Listener, streams: Subscriptions):
    opening = [asyncio.create_task(streams.open("lists", WANTED, timeout=5.0)) for _ in range(2)]
    await server.listening()
    await settle()
    streams.close("lists")

    for each in opening:
        with pytest.raises(RequestTimeout, match="ended before it was acknowledged"):
            await each


async def test_stream_without_acknowledgement_times_out(server: Listener, streams: Subscriptions):
    with pytest.raises(RequestTimeout, match="not acknowledged within"):
        await streams.open("lists", WANTED, timeout=0.01)

    assert (await server.heard("notifications/cancelled"))["requestId"] == await server.listening()
    await opened(server, streams, "lists", times=2)


async def test_cancelling_the_open_closes_the_stream(server: Listener, streams: Subscriptions):
    opening = asyncio.create_task(streams.open("lists", WANTED, timeout=5.0))
    id = await server.listening()
    opening.cancel()

    assert (await server.heard("notifications/cancelled"))["requestId"] == id


async def test_a_cancelled_open_does_not_fail_another_open_of_the_same_stream(
    server: Listener, streams: Subscriptions
):
    first, second = (asyncio.create_task(streams.open("a", WANTED, timeout=5.0)) for _ in range(2))
    id = await server.listening()
    await settle()
    first.cancel()
    await settle()
    server.acknowledge(id)

    await second
    assert first.cancelled()
    assert "a" in streams._streams


async def test_refused_stream_is_raised(server: Listener, streams: Subscriptions):
    def refuse(_: Json) -> Json:
        raise RemoteError(-32601, "no streams here")

    server.answers[LISTEN] = refuse
    with pytest.raises(RemoteError, match="no streams here"):
        await streams.open("lists", WANTED, timeout=5.0)


async def test_stream_that_ends_before_its_acknowledgement_is_an_error(
    server: Listener, streams: Subscriptions
):
    opening = asyncio.create_task(streams.open("lists", WANTED, timeout=5.0))
    server.finish(await server.listening())
    await settle()

    assert opening.done()
    with pytest.raises(RequestTimeout, match="ended before"):
        await opening


async def test_stream_that_the_server_ends_is_reopened(
    server: Listener, streams: Subscriptions, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(subscriptions, "FIRST_PAUSE", 0.0)
    server.finish(await opened(server, streams, "lists"))
    await settle()

    await opened(server, streams, "lists", times=2)
    assert server.sent("notifications/cancelled") == []


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Skip all sleeps; return the list of their lengths."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        if seconds:
            made.append(seconds)
        await sleep(0)

    monkeypatch.setattr(subscriptions.asyncio, "sleep", pause)
    return made


@pytest.mark.parametrize(
    ("well", "expected"),
    [(60.0, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]), (-1.0, [1] * 20)],
    ids=["ends at once", "was well"],
)
async def test_reopening_a_failing_stream_backs_off_and_stops(
    server: Listener,
    streams: Subscriptions,
    pauses: list[float],
    well: float,
    expected: list[float],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(subscriptions, "RESET_AFTER", well)
    await opened(server, streams, "a")

    def end(_: Json) -> Json | None:
        return {"resultType": "complete"} if len(server.sent(LISTEN)) <= 20 else None

    server.answers[LISTEN] = end
    server.finish(server.received[-1]["id"])
    for _ in range(20):
        await settle()

    assert pauses == expected
    assert len(server.sent(LISTEN)) == len(expected) + 1
    assert not streams._acknowledged.keys() - {server.received[-1]["id"]}


@pytest.mark.usefixtures("pauses")
async def test_stream_refused_on_reopening_is_not_retried(server: Listener, streams: Subscriptions):
    def refuse(_: Json) -> Json:
        raise RemoteError(-32601, "no streams any more")

    first = await opened(server, streams, "a")
    server.answers[LISTEN] = refuse
    server.finish(first)
    for _ in range(5):
        await settle()

    assert len(server.sent(LISTEN)) == 2
    assert not streams._streams


@pytest.mark.usefixtures("nothing_is_left")
async def test_second_acknowledgement_is_ignored(server: Listener, streams: Subscriptions):
    opening = asyncio.create_task(streams.open("a", WANTED, timeout=5.0))
    id = await server.listening()
    server.acknowledge(id)
    server.acknowledge(id)
    await opening

    assert not streams._acknowledged


async def test_opening_a_closed_stream_waits_for_the_new_one(
    server: Listener, streams: Subscriptions
):
    given_up = asyncio.create_task(streams.open("a", WANTED, timeout=5.0))
    await server.listening()
    streams.close("a")
    waiting = [asyncio.create_task(streams.open("a", WANTED, timeout=5.0))]
    second = await server.listening(2)
    with pytest.raises(RequestTimeout, match="ended before"):
        await given_up
    waiting.append(asyncio.create_task(streams.open("a", WANTED, timeout=5.0)))
    await settle()
    assert [each.done() for each in waiting] == [False, False]

    server.acknowledge(second)
    await asyncio.gather(*waiting)


async def test_closing_one_stream_leaves_the_others_open(server: Listener, streams: Subscriptions):
    first = await opened(server, streams, "a")
    await opened(server, streams, "b", times=2)
    streams.close("a")
    streams.close("a")
    streams.close("never opened")

    assert (await server.heard("notifications/cancelled"))["requestId"] == first
    await streams.open("b", WANTED, timeout=5.0)
    assert len(server.sent(LISTEN)) == 2


async def test_stream_closed_and_reopened_stays_open(server: Listener, streams: Subscriptions):
    async def acknowledge_the_second() -> None:
        server.acknowledge(await server.listening(2))

    await opened(server, streams, "a")
    acknowledging = asyncio.create_task(acknowledge_the_second())
    await settle()
    streams.close("a")
    await streams.open("a", WANTED, timeout=5.0)
    await acknowledging
    await streams.open("a", WANTED, timeout=5.0)

    assert len(server.sent(LISTEN)) == 2
    assert len(server.sent("notifications/cancelled")) == 1


async def test_streams_end_with_the_connection(
    server: Listener, client: Client, streams: Subscriptions
):
    await opened(server, streams, "a")
    opening = asyncio.create_task(streams.open("b", WANTED, timeout=5.0))
    await server.listening(2)
    await server.end()

    with pytest.raises(ConnectionClosed):
        await opening
    with pytest.raises(ConnectionClosed):
        await streams.open("a", WANTED, timeout=5.0)


async def test_streams_are_limited(
    server: Listener, streams: Subscriptions, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(subscriptions, "MAX_SUBSCRIPTIONS", 1)
    await opened(server, streams, "a")

    with pytest.raises(Exception, match=r"limit 1\); end some first") as caught:
        await streams.open("b", WANTED, timeout=5.0)
    assert not isinstance(caught.value, ConnectionClosed)


@each_row("when", ["open", "opening", "just closed", "ended"])
async def test_closed_client_leaves_no_task(when: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subscriptions, "FIRST_PAUSE", 60.0)
    server = Listener()
    server.capabilities = {"tools": {"listChanged": True}}
    before = asyncio.all_tasks()
    client = Client(server.connect, revision=MODERN, on_list_changed=lambda _: None)
    await client.open()
    first = await server.listening()
    if when != "opening":
        server.acknowledge(first)
    following = asyncio.create_task(client.subscribe("file:///a"))
    second = await server.listening(2)
    if when == "just closed":
        server.acknowledge(second)
        await following
        await client.unsubscribe("file:///a")
    if when == "ended":  # by the server, so that a pause goes by before it is asked for again
        server.finish(first)
        await settle()
    async with asyncio.timeout(10.0):
        await client.close()

    assert asyncio.all_tasks() - before <= {following}
    await asyncio.gather(following, return_exceptions=True)


async def test_late_acknowledgement_is_ignored(server: Listener, streams: Subscriptions):
    ids: list[Any] = []
    with pytest.raises(RequestTimeout):
        await streams.open("a", WANTED, timeout=0.01)
    ids.append(await server.listening())
    server.acknowledge(ids[0])
    await settle()

    await opened(server, streams, "a", times=2)


async def test_wait_closed_waits_for_closed_streams(server: Listener, streams: Subscriptions):
    before = asyncio.all_tasks()
    await opened(server, streams, "a")
    await opened(server, streams, "b", times=2)
    streams.close("a")
    streams.close_all()
    await streams.wait_closed()

    assert asyncio.all_tasks() - before == set()
