"""Worker threads that run plain (not async) functions, shared fairly between callers.

Rules:

1. A caller is a principal, a connection or a session. Callers with waiting calls take turns.
2. One caller uses at most half of the threads, so that another caller finds a free thread.
3. A call waits until a thread is free. The number of waiting calls and their wait are limited.
4. A thread cannot be stopped, so it is free only once its function has returned.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Any, NamedTuple

from interlock.context import Context
from interlock.errors import ToolError

THREADS = 32
MAX_QUEUED = 8_192  # calls that wait for a thread
MAX_QUEUED_EACH = 1_024  # calls of one caller that wait for a thread
MAX_WAIT = 60.0  # seconds that a call waits for a thread


class _Job(NamedTuple):
    """A call to run in a thread, and the future that the caller awaits."""

    call: Callable[[], Any]
    caller: Hashable
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Future[Any]
    deadline: float


class Workers:
    """A pool of threads that run plain functions.

    The threads are daemons, so that a call that never returns cannot keep the process alive.

    Args:
        threads: The number of functions that run at the same time; one caller may use half.
        max_queued: The number of calls that may wait for a thread.
        max_queued_each: The number of waiting calls that one caller may have.
        max_wait: The seconds after which a waiting call is refused.
    """

    def __init__(
        self,
        threads: int = THREADS,
        *,
        max_queued: int = MAX_QUEUED,
        max_queued_each: int = MAX_QUEUED_EACH,
        max_wait: float = MAX_WAIT,
    ) -> None:
        self._max_threads = threads
        self._max_running_each = (threads + 1) // 2
        self._max_queued = max_queued
        self._max_queued_each = max_queued_each
        self._max_wait = max_wait
        # The event loops and the threads share the attributes below, so they hold this lock.
        self._lock = Lock()
        self._threads = 0
        self._running = 0
        self._running_each: dict[Hashable, int] = {}  # the number of running calls, by caller
        self._ready: SimpleQueue[_Job | None] = SimpleQueue()
        self._queued = 0
        self._waiting: dict[Hashable, deque[_Job]] = {}  # first the caller whose turn is next
        self._timed_by: asyncio.AbstractEventLoop | None = None  # the loop that runs `_expire`

    async def run(
        self, function: Callable[..., Any], arguments: dict[str, Any], context: Context
    ) -> Any:
        """Run a function in a thread; if it returns an awaitable, await it in the event loop.

        Raises:
            ToolError: The call was refused, as by `submit`.
        """
        value = await self.submit(function, arguments, context)
        return await value if hasattr(value, "__await__") else value

    def submit(
        self, function: Callable[..., Any], arguments: dict[str, Any], context: Context
    ) -> asyncio.Future[Any]:
        """Run a plain function in a thread, with the current task's context variables.

        Raises:
            ToolError: Too many calls are waiting, or the system cannot start a thread. The future
                fails with this error if the call waits for too long.
        """
        principal = context.principal
        caller = principal.owner if principal is not None else context.link.caller
        loop = asyncio.get_running_loop()
        call = partial(contextvars.copy_context().run, function, **arguments)
        deadline = monotonic() + self._max_wait
        with self._lock:
            running = self._running_each.get(caller, 0)
            is_free = self._running < self._max_threads and running < self._max_running_each
            if is_free and self._threads <= self._running:
                self._add_thread()
            job = _Job(call, caller, loop, loop.create_future(), deadline)
            if is_free:
                self._running += 1
                self._running_each[caller] = running + 1
                self._ready.put(job)
            else:
                self._enqueue(job)
        return job.ended

    def _add_thread(self) -> None:
        thread = Thread(target=self._work, args=(self._ready,), name="interlock-tool", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if not self._threads:
                raise ToolError("busy: the system has no more threads; try again later") from None
        else:
            self._threads += 1

    # Waiting

    def _enqueue(self, job: _Job) -> None:
        queue = self._waiting.get(job.caller, ())
        if self._queued >= self._max_queued or len(queue) >= self._max_queued_each:
            self._drop(lambda each: each.ended.done())  # remove calls that were cancelled
            queue = self._waiting.get(job.caller, ())
        if len(queue) >= self._max_queued_each:
            limit = f"{len(queue)} of your calls wait already, limit {self._max_queued_each}"
            raise ToolError(f"the server is busy ({limit}); try again later")
        if self._queued >= self._max_queued:
            limit = f"{self._queued} calls wait already, limit {self._max_queued}"
            raise ToolError(f"the server is busy ({limit}); try again later")
        self._waiting.setdefault(job.caller, deque()).append(job)
        self._queued += 1
        if self._timed_by is not job.loop:
            self._timed_by = job.loop
            job.loop.call_later(self._max_wait, self._expire)

    def _drop(self, unwanted: Callable[[_Job], bool]) -> list[_Job]:
        dropped = []
        for caller, queue in list(self._waiting.items()):
            gone = [job for job in queue if unwanted(job)]
            if gone:
                dropped += gone
                kept = deque(job for job in queue if not unwanted(job))
                self._waiting[caller] = kept
                if not kept:
                    del self._waiting[caller]
        self._queued -= len(dropped)
        return dropped

    def _expire(self) -> None:
        """Refuse the calls that have waited too long. Runs in the event loop."""
        now = monotonic()
        loop = asyncio.get_running_loop()
        with self._lock:
            self._timed_by = None
            expired = self._drop(lambda job: job.deadline <= now and job.loop is loop)
            if self._waiting:
                first = min(queue[0].deadline for queue in self._waiting.values())
                self._timed_by = loop
                loop.call_later(max(first - now, 0.1), self._expire)
        for job in expired:
            if not job.ended.done():
                waited = f"no thread was free for {self._max_wait:g} s"
                job.ended.set_exception(
                    ToolError(f"the server is busy ({waited}); try again later")
                )

    # Running

    def _work(self, ready: SimpleQueue[_Job | None]) -> None:
        while (job := ready.get()) is not None:
            while job is not None:
                value, error = None, None
                try:
                    if not job.ended.cancelled():
                        value = job.call()
                except BaseException as raised:
                    error = raised
                next_job = self._finish(job)
                with suppress(RuntimeError):  # the event loop has been closed in the meantime
                    job.loop.call_soon_threadsafe(_settle, job.ended, value, error)
                del value, error  # so that an idle thread does not keep them in memory
                job, next_job = next_job, None

    def _finish(self, done: _Job) -> _Job | None:
        """Free the thread of a finished call; return the next call for this thread, if any."""
        with self._lock:
            self._running_each[done.caller] -= 1
            if not self._running_each[done.caller]:
                del self._running_each[done.caller]
            for caller, queue in self._waiting.items():
                running = self._running_each.get(caller, 0)
                if running < self._max_running_each:
                    self._running_each[caller] = running + 1
                    del self._waiting[caller]
                    job = queue.popleft()
                    self._queued -= 1
                    if queue:
                        self._waiting[caller] = queue  # put the caller last
                    return job
            self._running -= 1
            return None

    def close(self) -> None:
        """End the threads after all running and waiting calls. `submit` may still be called."""
        with self._lock:
            for _ in range(self._threads):
                self._ready.put(None)
            self._threads = 0
            self._ready = SimpleQueue()


def _settle(ended: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if ended.done():
        return
    if isinstance(error, StopIteration | GeneratorExit):  # futures do not accept these
        error = RuntimeError(f"the function raised {type(error).__name__}")
    if error is None:
        ended.set_result(value)
    else:
        ended.set_exception(error)
