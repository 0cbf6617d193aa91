"""Group commit: items that arrive while one commit runs are committed together in the next.

1. A commit begins once a caller waits for an item and no further items arrive in a turn of the
   event loop. One commit covers the records of many calls, so simultaneous calls share its cost.
2. Items that no caller waits for, such as the outcomes of calls, join the next commit. They start
   their own commit only after `LINGER`. So consecutive calls cost one commit each instead of two.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from operator import itemgetter
from typing import Generic, TypeVar

from interlock.errors import AuditFailed, AuditUnavailable, StoreError
from interlock.histogram import DATABASE_BOUNDS, Histogram

WAIT = 0.9  # seconds after which `add` gives up
LINGER = 0.01  # seconds until items that no caller waits for are committed
GATHER = 0.01  # seconds after which a commit begins even if more items keep arriving
CLOSE_WAIT = 5.0  # seconds that `close` waits for the last commit
MAX_RETRIED = 10_000  # items of failed commits that are kept for the next commit
MAX_GROUP = 2_000  # items in one commit; a larger commit might never finish in time

logger = logging.getLogger(__name__)

T = TypeVar("T")
_ITEM, _WAITER = itemgetter(0), itemgetter(1)
_Entry = tuple[T, "asyncio.Future[None] | None", float]  # item, waiting caller, time of adding


class GroupCommit(Generic[T]):
    """Items that are committed in groups, in the order in which they are added.

    Args:
        commit: Makes a group of items durable, or raises a `StoreError` and changes nothing.
        name: The name of the database or file, for error messages.
    """

    def __init__(self, commit: Callable[[list[T]], Awaitable[None]], name: str) -> None:
        self._commit = commit
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._queue: list[_Entry[T]] = []
        self._group: list[_Entry[T]] = []  # the entries whose commit is running
        self._retried: list[_Entry[T]] = []
        self.seconds, self.errors = Histogram(DATABASE_BOUNDS), 0  # of all commits
        self.dropped = 0  # number of lost items that no caller waited for
        self._is_awaited = False  # whether a caller is waiting for any queued item
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None  # starts the task
        self._stalled = False
        self._closed = False

    async def add(self, item: T) -> None:
        """Add an item; the item is durable when this returns.

        If the caller is cancelled, the item stays in the queue.

        Raises:
            AuditUnavailable: The item is not durable after `WAIT` seconds, or it was refused. If
                its commit is already running, the item may still become durable.
        """
        await self.queue(item)

    def queue(self, item: T) -> asyncio.Future[None]:
        """Add an item; return a future that is done once the item is durable.

        If the commit fails, the future fails, and the item is dropped.
        """
        if self._closed:
            raise self._gone()
        if self._stalled:
            raise self._late()
        waiter = self._loop.create_future()
        self._queue.append((item, waiter, self._loop.time()))
        self._is_awaited = True
        if self._task is None:
            self._task = self._loop.create_task(self._run(), context=Context())
        return waiter

    def add_soon(self, item: T) -> None:
        """Add an item without waiting. If its commit fails, the item joins the next commit.

        The item is committed with the next item that a caller waits for, or after `LINGER`.
        """
        if self._closed:
            raise self._gone()
        self._queue.append((item, None, self._loop.time()))
        if self._task is None and self._timer is None:
            self._timer = self._loop.call_later(LINGER, self._start)

    @property
    def is_stalled(self) -> bool:
        """Whether the running commit takes longer than `WAIT`."""
        return self._stalled

    @property
    def lag(self) -> float:
        """The seconds since the oldest item that is not durable yet was added."""
        waiting = self._group or self._retried or self._queue
        return self._loop.time() - waiting[0][2] if waiting else 0.0

    async def close(self) -> None:
        """Refuse new items, and commit the queued items within `CLOSE_WAIT` seconds."""
        self._closed = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._drain(), CLOSE_WAIT)
        lost = len(self._group) + len(self._retried) + len(self._queue) + self.dropped
        if lost:
            logger.error("%s: %d audit records may be lost", self._name, lost)

    async def _drain(self) -> None:
        while self._task is not None or self._queue:
            await asyncio.wait([self._task or self._start()])  # does not cancel the task
        if self._retried:
            await asyncio.wait([self._start()])

    # Committing

    def _start(self) -> asyncio.Task[None]:
        if self._task is None:
            self._task = self._loop.create_task(self._run(), context=Context())
        return self._task

    async def _run(self) -> None:
        """Commit groups, as long as a caller is waiting for an item in the next group."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            while True:
                # Wait while each turn brings a new item. Inlined, to save a function call per item.
                until, before = self._loop.time() + GATHER, -1
                while before != len(self._queue) < MAX_GROUP and self._loop.time() < until:
                    before = len(self._queue)
                    await asyncio.sleep(0)
                waiting = [*self._retried, *self._queue]
                self._group = group = waiting[:MAX_GROUP]
                self._queue, self._retried = waiting[MAX_GROUP:], []
                self._is_awaited = any(map(_WAITER, self._queue))
                since = self._loop.time()
                for _, waiter, at in group:
                    if waiter is not None:
                        since = at
                        break
                began = self._loop.time()
                alarm = self._loop.call_at(since + WAIT, self._give_up, group)
                try:
                    await self._commit(list(map(_ITEM, group)))
                except Exception as error:
                    self.errors += 1
                    _fail(group, error)
                    self._retry(group, error)
                else:
                    for _, waiter, _ in group:
                        if waiter is not None and not waiter.done():
                            waiter.set_result(None)
                finally:
                    alarm.cancel()
                    took = self._loop.time() - began
                    self.seconds.counts[bisect_left(DATABASE_BOUNDS, took)] += 1  # inlined, too
                    self.seconds.sum += took
                    self._stalled = False
                    self._group = []
                # Let the resumed callers add their next items, so that these share a commit.
                await asyncio.sleep(0)
                if not self._is_awaited:
                    break
        finally:
            self._task = None
        if self._queue:
            self._timer = self._loop.call_later(LINGER, self._start)

    def _give_up(self, group: list[_Entry[T]]) -> None:
        """Fail all waiting callers. Until the running commit ends, new callers fail immediately."""
        self._stalled = True
        _fail(group, self._late())
        _fail(self._queue, self._late())
        self._queue = [entry for entry in self._queue if entry[1] is None]
        self._is_awaited = False

    def _gone(self) -> AuditUnavailable:
        return AuditUnavailable(f"{self._name} has been closed")

    def _late(self) -> AuditUnavailable:
        return AuditUnavailable(f"{self._name} did not answer within {WAIT:g} s: try again")

    def _retry(self, group: list[_Entry[T]], error: Exception) -> None:
        unwaited = [entry for entry in group if entry[1] is None]
        if isinstance(error, AuditFailed) or not isinstance(error, StoreError):
            self.dropped += len(unwaited)
            return
        # Keep the items that no caller waits for, until another item is added or `close` is called.
        unwaited += [entry for entry in self._queue if entry[1] is None]
        self._queue = [entry for entry in self._queue if entry[1] is not None]
        self._retried = unwaited[:MAX_RETRIED]
        self.dropped += len(unwaited) - len(self._retried)


def _fail(group: list[_Entry[T]], error: Exception) -> None:
    for _, waiter, _ in group:
        if waiter is not None and not waiter.done():
            # Each caller gets its own exception object, because raising it extends its traceback.
            copy = type(error)(*error.args) if isinstance(error, StoreError) else error
            copy.__cause__ = error.__cause__
            waiter.set_exception(copy)
