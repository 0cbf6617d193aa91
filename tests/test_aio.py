"""Work in threads that may hang, and pauses between attempts."""

from __future__ import annotations

import asyncio
import sys
import threading
from unittest import mock

import pytest

from interlock.aio import Backoff, beside, in_thread
from tests.support.rows import each_row


@pytest.mark.usefixtures("nothing_is_left")
async def test_in_thread_returns_the_result_or_raises_the_error_and_leaves_no_thread():
    def fail() -> None:
        raise ValueError("no")

    assert await in_thread(threading.get_ident) != threading.get_ident()
    assert await in_thread(lambda: None) is None
    with pytest.raises(ValueError, match="no"):
        await in_thread(fail)
    async with asyncio.timeout(5):
        with pytest.raises(SystemExit):
            await in_thread(sys.exit)


def test_in_thread_program_exits_though_work_hangs():
    hanging, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        go_on.wait()

    async def time_out() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await in_thread(hang)

    asyncio.run(time_out())

    assert hanging.wait(10)  # it may begin after the timeout
    (thread,) = [each for each in threading.enumerate() if each.name == "interlock-blocking"]
    assert thread.daemon
    go_on.set()
    thread.join()


def test_backoff_doubles_each_pause_up_to_the_longest():
    backoff = Backoff(1.0, 5.0)
    assert [backoff.next_pause(now) for now in (0, 1, 2, 3, 4)] == [1, 2, 4, 5, 5]
    assert backoff.attempts == 5
    backoff.reset()
    assert (backoff.attempts, backoff.next_pause(9)) == (0, 1)


def test_backoff_restarts_after_an_attempt_that_lasted():
    backoff = Backoff(1.0, 5.0, reset_after=10.0)
    assert backoff.next_pause(100.0) == 1  # the second attempt begins at 101
    assert backoff.next_pause(111.0) == 2  # it lasted 10 s; the third begins at 113
    assert backoff.next_pause(123.5) == 1
    assert backoff.attempts == 1


@each_row(("chance", "pause"), [(0.0, 8.0), (0.5, 6.0), (1.0, 4.0)])
def test_backoff_jitter_shortens_a_pause(chance: float, pause: float):
    with mock.patch("random.random", return_value=chance):
        assert Backoff(8.0, 8.0, jitter=0.5).next_pause(0.0) == pause


async def test_end_of_work_beside_a_task_does_not_lose_the_cancellation_of_that_task():
    is_ending, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_ending.set()
            await may_end.wait()

    async def whole() -> None:
        async with beside(work()):
            await asyncio.sleep(0)

    running = asyncio.create_task(whole())
    await is_ending.wait()
    running.cancel()
    await asyncio.wait([running], timeout=5)

    assert running.cancelled()
    may_end.set()
