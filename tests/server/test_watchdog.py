"""A blocked event loop is logged once, with the stack of what blocks it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from interlock import Client, Server
from interlock.server import watchdog


class Warnings(logging.Handler):
    """Keeps warnings; a thread can wait for the next one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self.more = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.getMessage()}\n{record.stack_info}")
        self.more.release()


class SteeredEvent(threading.Event):
    """The event of a watchdog, which checks when the test allows it instead of by time."""

    def __init__(self) -> None:
        super().__init__()
        self.cleared = self.waited = 0
        self._allowed = threading.Semaphore(0)

    def allow(self, count: int) -> None:
        """Allow so many checks."""
        self._allowed.release(count)

    def wait(self, timeout: float | None = None) -> bool:
        self.waited += 1
        self._allowed.acquire()
        return self.is_set()

    def set(self) -> None:
        super().set()
        self._allowed.release()

    def clear(self) -> None:
        super().clear()
        self.cleared += 1


@pytest.fixture
def warnings(monkeypatch):
    monkeypatch.setattr(watchdog, "INTERVAL", 0.01)
    monkeypatch.setattr(watchdog, "Event", SteeredEvent)
    handler = Warnings()
    logging.getLogger("interlock.server").addHandler(handler)
    yield handler
    logging.getLogger("interlock.server").removeHandler(handler)


def check(times: int) -> None:
    """Let the watchdog of the running loop check so often."""
    watchdog._watched[asyncio.get_running_loop()]._stop.allow(times)


# The first check schedules a callback, the last one logs that it did not run.
ENOUGH = 1 + watchdog.PATIENCE


def count_watchdogs() -> int:
    return sum(each.name == "interlock-watchdog" for each in threading.enumerate())


async def test_a_tool_that_blocks_the_loop_is_logged_with_its_stack(warnings):
    server = Server("s")

    @server.tool
    async def hog() -> str:
        check(ENOUGH)
        assert warnings.more.acquire()  # blocks the loop until the watchdog has logged it
        return "done"

    async with Client.memory(server) as client:
        for count in (1, 2):
            assert (await client.call_tool("hog")).text == "done"
            assert len(warnings.texts) == count

    assert "tool hog has blocked the event loop for over 0.04 s" in warnings.texts[0]
    _, _, stack = warnings.texts[0].partition("\n")
    assert "in hog" in stack.splitlines()[0]  # frames of this package mean nothing to the author
    assert "warnings.more.acquire()" in stack


async def test_blocked_loop_outside_of_tools_is_logged_with_the_stack(warnings):
    with watchdog.watched():
        check(ENOUGH)
        assert warnings.more.acquire()

    assert warnings.texts[0].startswith("something has blocked the event loop")
    assert "test_blocked_loop_outside_of_tools" in warnings.texts[0]


async def test_a_long_blockage_is_logged_once(warnings):
    with watchdog.watched():
        stop = watchdog._watched[asyncio.get_running_loop()]._stop
        stop.allow(5 * ENOUGH)
        while stop.waited <= 5 * ENOUGH:  # it has checks left
            time.sleep(0.001)  # noqa: ASYNC251 - this is the blockage

    assert len(warnings.texts) == 1


async def test_loop_that_responds_in_time_is_not_logged(warnings):
    with watchdog.watched():
        alive = watchdog._watched[asyncio.get_running_loop()]._alive
        for count in range(1, 5 * ENOUGH):
            check(1)
            while alive.cleared < count or not alive.is_set():  # noqa: ASYNC110 - a thread checks
                await asyncio.sleep(0.001)

    assert warnings.texts == []


async def test_servers_on_one_loop_share_a_watchdog():
    before = count_watchdogs()
    async with Client.memory(Server("one")), Client.memory(Server("two")):
        assert count_watchdogs() == before + 1
    # The servers notice some time later that their clients have disconnected.
    while count_watchdogs() > before:  # noqa: ASYNC110 - nothing else signals it
        await asyncio.sleep(0)


def test_a_closed_loop_ends_its_watchdog(warnings):
    async def begin() -> watchdog.Watchdog:
        return watchdog.Watchdog(asyncio.get_running_loop())

    dog = asyncio.run(begin())
    dog._stop.allow(1)
    dog._thread.join()

    assert not dog._thread.is_alive()
