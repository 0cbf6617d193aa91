"""Slots of a server: turns, bounds, timeouts and cancelled calls."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from interlock.calls import CallHandler
from interlock.errors import LimitExceeded, RemoteError
from interlock.layers import fair_queue
from interlock.layers.fair_queue import FairQueue, queued
from tests.layers.support import Upstream, call_of, settle
from tests.support.clock import SteppedLoop
from tests.support.rows import each_row


class Queued:
    """Calls of users through the layer."""

    def __init__(self, slots: int, size: int = 1_000) -> None:
        self.queue = FairQueue("crm", slots, size)
        self.upstream = Upstream()
        self.upstream.gate.clear()
        self.handle: CallHandler = queued({"crm": self.queue})(self.upstream.handle)

    def start(self, user: str, times: int = 1) -> list[asyncio.Task[object]]:
        return [asyncio.create_task(self.call(user)) for _ in range(times)]

    async def call(self, user: str, server: str = "crm") -> object:
        return await self.handle(call_of(user, server=server))

    async def finish(self, *tasks: asyncio.Task[object]) -> list[object]:
        self.upstream.gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_no_more_calls_run_at_once_than_there_are_slots():
    server = Queued(slots=4)
    tasks = server.start("anna", 20)
    await settle()

    assert (server.upstream.running, server.queue.waiting) == (4, 16)
    await server.finish(*tasks)
    assert (server.upstream.calls, server.queue.waiting) == (20, 0)


async def test_freed_slot_goes_to_the_next_caller_in_the_ring():
    server = Queued(slots=1)
    tasks = [*server.start("greedy", 6), *server.start("berta", 2), *server.start("carla", 1)]
    await settle()
    await server.finish(*tasks)

    greedy, berta, carla = "greedy", "berta", "carla"
    assert server.upstream.order == [
        *(greedy, greedy, berta, carla),
        *(greedy, berta, greedy, greedy, greedy),
    ]


async def test_every_waiting_caller_gets_the_same_share():
    server = Queued(slots=3)
    users = ["anna"] * 60 + ["berta"] * 30 + ["carla"] * 20
    tasks = [task for user in users for task in server.start(user)]
    await settle()
    await server.finish(*tasks)

    first = Counter(server.upstream.order[3:63])
    assert set(first.values()) == {20}


async def test_calls_of_a_server_without_a_queue_do_not_wait():
    server = Queued(slots=1)
    tasks = server.start("anna", 3)
    tasks += [asyncio.create_task(server.call("anna", "web")) for _ in range(3)]
    await settle()

    assert server.upstream.running == 4
    await server.finish(*tasks)


@each_row(
    ("size", "users", "refused", "text"),
    [
        (1_000, ["greedy"] * 70, 5, "too many of your calls wait for server 'crm' (limit 64)"),
        (10, ["anna", "berta"] * 8, 5, "too many calls wait for server 'crm' (limit 10)"),
        (0, ["anna", "berta"], 1, "too many calls wait for server 'crm' (limit 0)"),
    ],
)
async def test_full_queue_refuses_a_call_at_once(
    size: int, users: list[str], refused: int, text: str
):
    server = Queued(slots=1, size=size)
    tasks = [task for user in users for task in server.start(user)]
    await settle()

    errors = [task.exception() for task in tasks if task.done()]
    assert len(errors) == refused
    for error in errors:
        assert isinstance(error, LimitExceeded)
        assert error.reason == "overloaded"
        assert str(error).startswith(text)
    await server.finish(*tasks)
    assert server.upstream.calls == len(users) - refused


async def test_greedy_caller_does_not_block_other_callers():
    server = Queued(slots=1)
    tasks = [*server.start("greedy", 1_000), *server.start("polite")]
    await settle()
    await server.finish(*tasks)

    assert server.upstream.order.index("polite") <= 2
    assert server.upstream.calls == 66


def test_call_that_waits_too_long_is_refused_and_leaves():
    async def run() -> None:
        server = Queued(slots=1)
        first, *late = server.start("anna", 3)
        for task in late:
            with pytest.raises(LimitExceeded, match="server 'crm' is busy") as refused:
                await task
            assert refused.value.reason == "queue_timeout"

        assert asyncio.get_running_loop().time() == pytest.approx(fair_queue.TIMEOUT)
        assert server.queue.waiting == 0
        await server.finish(first, *server.start("berta"))
        assert server.upstream.order == ["anna", "berta"]

    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        runner.run(run())


async def test_cancelled_call_leaves_the_queue_at_once():
    server = Queued(slots=1)
    first, second, third = server.start("anna", 3)
    await settle()
    second.cancel()
    await settle()

    assert second.cancelled()
    assert server.queue.waiting == 1
    await server.finish(first, third)
    assert server.upstream.calls == 2


async def test_call_cancelled_as_it_gets_its_slot_passes_it_on():
    server = Queued(slots=1)
    await server.queue.acquire("anna")
    second, third = server.start("berta"), server.start("carla")
    await settle()
    server.queue.release()
    second[0].cancel()  # before it can run
    await settle()

    assert second[0].cancelled()
    assert server.upstream.order == ["carla"]
    await server.finish(*third)
    await server.queue.acquire("anna")


async def test_slots_are_free_after_all_calls_are_cancelled_at_once():
    server = Queued(slots=2)
    tasks = [*server.start("anna", 10), *server.start("berta", 10)]
    await settle()
    for each in tasks:  # as when their clients disconnect
        each.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    waiting = server.queue.waiting
    later = server.start("carla", 5)
    await settle()

    assert {type(each) for each in ended} == {asyncio.CancelledError}
    assert waiting == 0
    assert (server.upstream.running, server.queue.waiting) == (2, 3)
    await server.finish(*later)


async def test_failed_call_frees_its_slot():
    server = Queued(slots=1)
    server.upstream.answers = [RemoteError(1, "no")]
    results = await server.finish(*server.start("anna", 3))

    assert [type(each) for each in results] == [RemoteError] * 3
    assert server.upstream.calls == 3
