"""asyncio helpers: tasks, blocking calls that may hang, retry pauses, and the end by Ctrl-C."""

from __future__ import annotations

import asyncio
import concurrent.futures
import random
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import Context
from functools import partial
from math import inf
from threading import Thread
from typing import Any, TypeVar

from interlock.errors import WrongLoop

T = TypeVar("T")

SLICE = 50  # items of long work, such as definitions of tools, between two turns of the event loop

# Start a task, with the arguments of `asyncio.Task`. The task runs at once up to its first wait,
# so it may already be done when it is returned. Most requests never wait, so this saves them a turn
# of the event loop.
if sys.version_info >= (3, 12):
    start = partial(asyncio.Task, eager_start=True)
else:
    start = asyncio.Task


def start_detached(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task that may outlive the request in which it is started.

    The task has an empty context. Otherwise the trace of this request would contain everything that
    the task does later for others.
    """
    return asyncio.create_task(work, context=Context())


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, T]) -> AsyncGenerator[asyncio.Task[T], None]:
    """Run a coroutine in its own task, and cancel the task at the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])  # raises only if the caller is cancelled
        if not task.cancelled():
            task.result()


def settle(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    """Set a future's result, or its exception if `error` is given, unless it was cancelled."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def is_cancelled() -> bool:
    """Return whether the running task itself was cancelled, rather than a task that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def in_thread(work: Callable[[], T]) -> T:
    """Run blocking work in its own thread. Cancelling ends the waiting, but not the work.

    The event loop's thread pool is not used, because a hanging thread in it would keep the program
    from exiting.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the event loop was closed
            loop.call_soon_threadsafe(settle, future, result, error)

    thread = Thread(target=run, name="interlock-blocking", daemon=True)
    thread.start()
    try:
        return await future
    finally:
        if future.done() and not future.cancelled():
            thread.join()  # returns at once: the work has ended


async def run_in(
    loop: asyncio.AbstractEventLoop | None, work: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """Run a coroutine function in an event loop, and await its result in the running loop.

    Args:
        loop: The event loop; None uses the running loop.
        work: The coroutine function; it is called in `loop`.

    Raises:
        WrongLoop: The loop is closed or stopped.
    """
    if loop is None or loop is asyncio.get_running_loop():
        return await work()
    return await asyncio.wrap_future(_submit(loop, work))


def block_on(
    loop: asyncio.AbstractEventLoop | None, work: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """Run a coroutine function in an event loop, and block this thread until it has a result."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if loop is None or running is loop:
        raise WrongLoop("this call would block its own event loop; use ainvoke or await")
    return _submit(loop, work).result()


def _submit(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]
) -> concurrent.futures.Future[T]:
    if not loop.is_running():
        raise WrongLoop("the event loop of the toolbox has ended; open the toolbox again")
    return asyncio.run_coroutine_threadsafe(work(), loop)


class Backoff:
    """Computes the pauses between attempts; each pause is twice as long as the pause before.

    Args:
        first: The first pause, in seconds.
        longest: The longest pause, in seconds.
        reset_after: Seconds; after an attempt that lasted longer, the pauses start again at
            `first`.
        jitter: The largest fraction by which a pause is randomly shortened, so that clients do
            not all retry at the same time.

    Attributes:
        attempts: The number of pauses since the series of attempts began.
    """

    def __init__(
        self, first: float, longest: float, reset_after: float = inf, *, jitter: float = 0.0
    ) -> None:
        self.attempts = 0
        self._first = first
        self._longest = longest
        self._reset_after = reset_after
        self._jitter = jitter
        self._pause = first
        self._began = inf  # start of the last attempt

    def next_pause(self, now: float) -> float:
        """Return the seconds to wait after an attempt that ended at `now`, a monotonic time."""
        if now - self._began > self._reset_after:
            self.reset()
        pause = self._pause * (1 - self._jitter * random.random())  # noqa: S311 - no secret
        self.attempts += 1
        self._pause = min(2 * self._pause, self._longest)
        self._began = now + pause
        return pause

    def reset(self) -> None:
        """Start again with the first pause, for example after a success."""
        self.attempts = 0
        self._pause = self._first


@contextmanager
def ending_on_interrupt() -> Iterator[None]:
    """End the block normally on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        end_interrupted_line()


def end_interrupted_line() -> None:
    """End the line on which a terminal shows ^C; the next prompt would follow on it."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(file=sys.stderr, flush=True)
