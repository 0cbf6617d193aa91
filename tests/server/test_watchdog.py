"""What blocks the event loop is told once, with its stack."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from interlock import Client, Server
from interlock.server import watchdog


class Told(logging.Handler):
    """Keeps warnings, and lets a thread wait for the next one."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self.more = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.getMessage()}\n{record.stack_info}")
        self.more.release()


class Steered(threading.Event):
    """An event of a watchdog, which looks when it is let instead of when its time has come."""

    def __init__(self) -> None:
        super().__init__()
        self.cleared = self.waited = 0
        self._allowed = threading.Semaphore(0)

    def allow(self, count: int) -> None:
        """Let it look so often."""
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
def told(monkeypatch):
    monkeypatch.setattr(watchdog, "INTERVAL", 0.01)
    monkeypatch.setattr(watchdog, "Event", Steered)
    handler = Told()
    logging.getLogger("interlock.server").addHandler(handler)
    yield handler
    logging.getLogger("interlock.server").removeHandler(handler)


def look(times: int) -> None:
    """Let the watchdog of the running loop look so often."""
    watchdog._watched[asyncio.get_running_loop()]._stop.allow(times)


# The first look asks for a sign of life, the last one tells that there was none.
ENOUGH = 1 + watchdog.PATIENCE


def watchdogs() -> int:
    return sum(each.name == "interlock-watchdog" for each in threading.enumerate())


async def test_a_tool_that_blocks_the_loop_is_logged_with_its_stack(told):
    server = Server("s")

    @server.tool
    async def hog() -> str:
        look(ENOUGH)
        assert told.more.acquire(timeout=10)  # blocks until the watchdog has seen it
        return "done"

    async with Client.memory(server) as client:
        for count in (1, 2):
            assert (await client.call_tool("hog")).text == "done"
            assert len(told.texts) == count

    assert "tool hog has blocked the event loop for over 0.04 s" in told.texts[0]
    assert "told.more.acquire(timeout=10)" in told.texts[0]


async def test_a_blockage_outside_of_tools_is_logged_with_its_stack_alone(told):
    with watchdog.watched():
        look(ENOUGH)
        assert told.more.acquire(timeout=10)

    assert told.texts[0].startswith("something has blocked the event loop")
    assert "test_what_is_no_tool" in told.texts[0]


async def test_a_long_blockage_is_logged_once(told):
    with watchdog.watched():
        stop = watchdog._watched[asyncio.get_running_loop()]._stop
        stop.allow(5 * ENOUGH)
        while stop.waited <= 5 * ENOUGH:  # it has not looked for the last time
            time.sleep(0.001)  # noqa: ASYNC251 - this is the blockage

    assert len(told.texts) == 1


async def test_a_running_loop_is_not_logged(told):
    with watchdog.watched():
        alive = watchdog._watched[asyncio.get_running_loop()]._alive
        for count in range(1, 5 * ENOUGH):
            look(1)
            while alive.cleared < count or not alive.is_set():  # noqa: ASYNC110 - a thread asks
                await asyncio.sleep(0.001)

    assert told.texts == []


async def test_servers_on_one_loop_share_a_watchdog():
    before = watchdogs()
    async with Client.memory(Server("one")), Client.memory(Server("two")):
        assert watchdogs() == before + 1
    # The servers notice in their own time that their clients have gone.
    async with asyncio.timeout(10):
        while watchdogs() > before:  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0)


def test_a_closed_loop_ends_its_watchdog(told):
    async def begin() -> watchdog.Watchdog:
        return watchdog.Watchdog(asyncio.get_running_loop())

    dog = asyncio.run(begin())
    dog._stop.allow(1)
    dog._thread.join(10)

    assert not dog._thread.is_alive()
