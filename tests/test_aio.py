"""Work in threads that may never come back."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from interlock.aio import in_thread


@pytest.mark.usefixtures("nothing_is_left")
async def test_work_gives_its_result_or_its_error_and_leaves_no_thread():
    def fail() -> None:
        raise ValueError("no")

    assert await in_thread(threading.get_ident) != threading.get_ident()
    assert await in_thread(lambda: None) is None
    with pytest.raises(ValueError, match="no"):
        await in_thread(fail)
    async with asyncio.timeout(5):
        with pytest.raises(SystemExit):
            await in_thread(sys.exit)


def test_a_program_can_end_while_a_thread_hangs():
    hanging, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        hanging.set()
        go_on.wait()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await in_thread(hang)

    asyncio.run(give_up())

    assert hanging.wait(10)  # it may begin after it was given up
    (thread,) = [each for each in threading.enumerate() if each.name == "interlock-blocking"]
    assert thread.daemon
    go_on.set()
    thread.join()
