"""asyncio helpers: tasks that start at once, and blocking calls that may never return."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

T = TypeVar("T")

# As `asyncio.Task(coroutine, loop=..., name=...)`. The task runs at once up to its first wait, so
# it may be done when it is returned. Most requests wait for nothing and save a turn of the loop.
if sys.version_info >= (3, 12):
    start = partial(asyncio.Task, eager_start=True)
else:
    start = asyncio.Task


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread of its own; who stops waiting leaves it behind.

    The pool of the event loop will not do: a program cannot end while one of its threads hangs.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # T itself may be None

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # nobody waits any more, and the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    thread = Thread(target=run, name="interlock-blocking", daemon=True)
    thread.start()
    try:
        return await future
    finally:
        if future.done() and not future.cancelled():
            thread.join()  # it has nothing left to do
