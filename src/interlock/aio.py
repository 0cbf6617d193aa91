"""Blocking calls that may never come back, such as to a name server or a keyring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


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
