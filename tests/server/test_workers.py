"""Threads for plain functions: fair among callers, bounded, and never stopped by a hanging one."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from interlock import Client, Server
from interlock.auth.principal import Principal
from interlock.context import Context
from interlock.errors import ToolError
from interlock.server import workers as workers_module
from interlock.server.workers import Workers


def context_of(name: str) -> Context:
    return SimpleNamespace(principal=Principal(name))  # type: ignore[return-value]


ANN, BOB = context_of("ann"), context_of("bob")


class Blocker:
    """A function that does not return until it is released."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._released = threading.Event()

    def __call__(self) -> str:
        self._loop.call_soon_threadsafe(self.begun.set)
        self._released.wait()
        return "late"

    def release(self) -> None:
        self._released.set()


async def test_a_function_sees_the_callers_context_variables():
    variable = ContextVar("variable", default="none")
    variable.set("caller's")
    workers = Workers(1)

    assert await workers.run(variable.get, {}, ANN) == "caller's"
    workers.close()


# Fairness


async def test_callers_take_turns_however_many_calls_one_of_them_has_waiting():
    workers = Workers(1)
    blocker, order = Blocker(), []

    def note(call: tuple[str, int]) -> None:
        order.append(call)

    blocked = workers.submit(blocker, {}, ANN)
    greedy = [workers.submit(note, {"call": ("ann", n)}, ANN) for n in range(5)]
    polite = [workers.submit(note, {"call": ("bob", n)}, BOB) for n in range(2)]
    blocker.release()
    await asyncio.gather(blocked, *greedy, *polite)

    assert order == [
        ("ann", 0), ("bob", 0), ("ann", 1), ("bob", 1), ("ann", 2), ("ann", 3), ("ann", 4),
    ]  # fmt: skip
    workers.close()


async def test_one_caller_cannot_hold_all_threads():
    workers = Workers(2)
    blockers = [Blocker() for _ in range(3)]
    blocked = [workers.submit(each, {}, ANN) for each in blockers]

    assert await workers.run(lambda: "at once", {}, BOB) == "at once"
    assert not any(each.done() for each in blocked)
    for each in blockers:
        each.release()
    assert await asyncio.gather(*blocked) == ["late"] * 3
    workers.close()


@pytest.mark.slow("makes a thousand calls")
async def test_a_thousand_calls_at_once_of_a_plain_tool_are_all_answered():
    server = Server("s")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    async with Client.memory(server) as client:
        results = await asyncio.gather(
            *(client.call_tool("add", {"a": number, "b": 1}) for number in range(1_000))
        )

    assert [each.structured for each in results] == list(range(1, 1_001))


async def test_each_connection_counts_as_a_separate_caller():
    server = Server("s")
    blocker = Blocker()
    server.tool(name="block")(blocker.__call__)
    server.tool(name="quick")(lambda: "quick")

    async with Client.memory(server) as greedy, Client.memory(server) as polite:
        blocked = [asyncio.create_task(greedy.call_tool("block")) for _ in range(100)]
        await blocker.begun.wait()
        assert (await polite.call_tool("quick")).text == "quick"
        assert not any(each.done() for each in blocked)
        blocker.release()
        assert {(await each).text for each in blocked} == {"late"}


# Bounds


async def test_a_caller_with_too_many_waiting_calls_is_refused_and_others_are_not():
    workers = Workers(1, max_queued_each=1)
    blocker = Blocker()
    accepted = [workers.submit(blocker, {}, ANN), workers.submit(blocker, {}, ANN)]

    with pytest.raises(ToolError, match=r"busy \(1 of your calls wait already, limit 1\); try"):
        workers.submit(blocker, {}, ANN)
    accepted.append(workers.submit(blocker, {}, BOB))
    blocker.release()

    assert await asyncio.gather(*accepted) == ["late"] * 3
    assert await workers.run(lambda: "again", {}, ANN) == "again"
    workers.close()


async def test_calls_of_all_callers_are_bounded():
    workers = Workers(1, max_queued=1)
    blocker = Blocker()
    accepted = [workers.submit(blocker, {}, ANN), workers.submit(blocker, {}, ANN)]

    with pytest.raises(ToolError, match=r"busy \(1 calls wait already, limit 1\); try again"):
        workers.submit(blocker, {}, BOB)
    accepted[1].cancel()  # and so makes room
    accepted[1] = workers.submit(blocker, {}, BOB)
    blocker.release()

    assert await asyncio.gather(*accepted) == ["late"] * 2
    workers.close()


async def test_a_call_that_waits_too_long_for_a_thread_is_refused(monkeypatch):
    now = 0.0
    monkeypatch.setattr(workers_module, "monotonic", lambda: now)
    loop = asyncio.get_running_loop()
    timers: list[Any] = []
    monkeypatch.setattr(loop, "call_later", lambda delay, call: timers.append((delay, call)))
    workers = Workers(1, max_wait=30.0)
    blocker = Blocker()
    running = workers.submit(blocker, {}, ANN)
    first = workers.submit(blocker, {}, ANN)
    now = 10.0
    second = workers.submit(blocker, {}, BOB)

    now = 30.0
    (_, expire), *_ = timers
    expire()
    with pytest.raises(ToolError, match=r"busy \(no thread was free for 30 s\); try again later"):
        await first
    assert not second.done()
    assert [delay for delay, _ in timers] == [30.0, 10.0]

    blocker.release()
    assert await asyncio.gather(running, second) == ["late"] * 2
    workers.close()


async def test_the_thread_of_a_cancelled_call_is_not_free_until_its_function_returns():
    workers = Workers(1, max_queued=0)
    blocker = Blocker()
    cancelled = workers.submit(blocker, {}, ANN)
    await blocker.begun.wait()
    cancelled.cancel()

    with pytest.raises(ToolError, match="busy"):
        workers.submit(blocker, {}, ANN)
    blocker.release()
    workers.close()


async def test_a_system_without_threads_refuses_the_call(monkeypatch):
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    workers = Workers(2)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(ToolError, match="the system has no more threads"):
            workers.submit(lambda: None, {}, ANN)

    assert await workers.run(lambda: "later", {}, ANN) == "later"
    workers.close()


# Ends


async def test_a_call_that_is_cancelled_while_it_waits_does_not_run():
    workers = Workers(1)
    blocker, ran = Blocker(), []
    first = workers.submit(blocker, {}, ANN)
    second = workers.submit(lambda: ran.append(1), {}, ANN)
    second.cancel()
    blocker.release()
    await first

    assert await workers.run(lambda: "third", {}, ANN) == "third"
    assert ran == []
    workers.close()


async def test_the_value_of_a_cancelled_call_is_dropped_silently():
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, error: reported.append(error))
    workers = Workers(1)
    blocker = Blocker()
    cancelled = workers.submit(blocker, {}, ANN)
    await blocker.begun.wait()
    cancelled.cancel()
    blocker.release()

    assert await workers.run(lambda: "next", {}, ANN) == "next"
    assert reported == []
    workers.close()


def test_a_function_that_outlives_its_event_loop_frees_its_thread():
    before = set(threading.enumerate())
    workers = Workers(1, max_queued=0)
    begun, released = threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        released.wait()

    async def leave() -> None:
        call = workers.submit(block, {}, ANN)
        assert await asyncio.to_thread(begun.wait, 10)
        call.cancel()

    asyncio.run(leave())
    released.set()
    workers.close()
    for each in set(threading.enumerate()) - before:
        each.join()

    assert asyncio.run(workers.run(lambda: "free", {}, ANN)) == "free"
    workers.close()


async def test_threads_are_started_as_needed_and_end_after_close():
    before = set(threading.enumerate())
    workers = Workers(4)
    for _ in range(10):
        await workers.run(lambda: None, {}, ANN)
    started = set(threading.enumerate()) - before
    workers.close()
    for each in started:
        each.join()

    assert len(started) == 1
    assert not any(each.is_alive() for each in started)
    assert await workers.run(lambda: "open again", {}, ANN) == "open again"
    workers.close()


async def test_an_idle_thread_keeps_no_result_alive():
    class Large: ...

    workers = Workers(1)
    await workers.run(Large, {}, ANN)
    await workers.run(lambda: None, {}, ANN)
    gc.collect()

    assert not any(isinstance(each, Large) for each in gc.get_objects())
    workers.close()
