"""What blocks the event loop is told once, with its stack."""

from __future__ import annotations

import asyncio
import logging
import threading

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


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(watchdog, "INTERVAL", 0.01)
    handler = Told()
    logging.getLogger("interlock.server").addHandler(handler)
    yield handler
    logging.getLogger("interlock.server").removeHandler(handler)


def watchdogs() -> int:
    return sum(each.name == "interlock-watchdog" for each in threading.enumerate())


async def test_a_tool_that_blocks_the_loop_is_named_with_its_stack_once_a_blockage(told):
    server = Server("s")

    @server.tool
    async def hog() -> str:
        assert told.more.acquire(timeout=10)  # blocks until the watchdog has seen it
        return "done"

    async with Client.memory(server) as client:
        for count in (1, 2):
            assert (await client.call_tool("hog")).text == "done"
            assert len(told.texts) == count

    assert "tool hog has blocked the event loop for over 0.04 s" in told.texts[0]
    assert "told.more.acquire(timeout=10)" in told.texts[0]


async def test_what_is_no_tool_is_told_by_its_stack_alone(told):
    with watchdog.watched():
        assert told.more.acquire(timeout=10)

    assert told.texts[0].startswith("something has blocked the event loop")
    assert "test_what_is_no_tool" in told.texts[0]


async def test_a_long_blockage_is_told_once(told):
    with watchdog.watched():
        assert told.more.acquire(timeout=10)
        assert not told.more.acquire(timeout=20 * watchdog.INTERVAL)

    assert len(told.texts) == 1


async def test_a_loop_that_turns_is_left_in_peace(told):
    with watchdog.watched():
        for _ in range(10):
            await asyncio.sleep(watchdog.INTERVAL)

    assert told.texts == []


async def test_a_loop_has_one_watchdog_however_many_servers_run_in_it():
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
    dog._thread.join(10)

    assert not dog._thread.is_alive()
