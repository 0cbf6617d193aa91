"""The interface of a store of tasks, and a store that keeps them in memory."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from time import monotonic
from typing import Literal, Protocol

from msgspec import Raw, Struct

from interlock.errors import InterlockError

MAX_KEPT = 10_000
MAX_KEPT_BYTES = 64 * 1_048_576  # bytes of all results
PART_EACH = 0.25  # the fraction of both limits that one principal may use

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class Task(Struct, frozen=True, kw_only=True):
    """A snapshot of a task, as a store keeps it."""

    id: str
    owner: str  # `Principal.owner`; "" for an unauthenticated caller
    status: Status
    message: str | None = None
    created_at: datetime
    updated_at: datetime
    ttl: float  # seconds from the task's creation until it expires
    questions: dict[str, Raw] = {}  # the open questions, as encoded requests by key
    outcome: Raw = Raw(b"")  # encoded: the result of a completed task, the error of a failed one


class TaskStore(Protocol):
    """A store of tasks. Calls that concern the same task never overlap."""

    async def put(self, task: Task) -> None:
        """Store a task, replacing any task with the same id. Afterwards, `get` returns the task.

        Raises:
            InterlockError: The store is full.
        """
        ...

    async def get(self, id: str) -> Task | None:
        """Return a task; None if it does not exist, or is older than its `ttl`."""
        ...


class MemoryTasks:
    """A store that keeps tasks in this process, up to a number of tasks and bytes of results.

    One principal can use only `PART_EACH` of both limits, so that others have room.
    """

    def __init__(self, max_tasks: int = MAX_KEPT, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_tasks = max_tasks
        self._max_bytes = max_bytes
        self._kept: dict[str, tuple[float, Task]] = {}  # with its expiry by the monotonic clock
        self._counts: Counter[str] = Counter()  # the number of tasks, by owner
        self._bytes: Counter[str] = Counter()  # the bytes of results, by owner

    async def put(self, task: Task) -> None:
        if not self._has_room(task):
            self._expire()
        if not self._has_room(task):
            raise InterlockError(
                f"no room for another task (limit {self._max_tasks} tasks, {self._max_bytes} bytes "
                f"of results, {PART_EACH:.0%} of both for one principal); try again later"
            )
        self._drop(task.id)
        self._counts[task.owner] += 1
        self._bytes[task.owner] += len(task.outcome)
        age = (task.updated_at - task.created_at).total_seconds()
        self._kept[task.id] = (monotonic() + task.ttl - age, task)

    async def get(self, id: str) -> Task | None:
        end, task = self._kept.get(id, (0.0, None))
        return task if monotonic() <= end else None

    def _has_room(self, task: Task) -> bool:
        _, before = self._kept.get(task.id, (0.0, None))
        more = int(before is None)
        grows = len(task.outcome) - (len(before.outcome) if before else 0)
        part = PART_EACH if task.owner else 1.0
        return (
            len(self._kept) + more <= self._max_tasks
            and self._bytes.total() + grows <= self._max_bytes
            and self._counts[task.owner] + more <= self._max_tasks * part
            and self._bytes[task.owner] + grows <= self._max_bytes * part
        )

    def _expire(self) -> None:
        now = monotonic()
        for id, (end, _) in list(self._kept.items()):
            if end < now:
                self._drop(id)

    def _drop(self, id: str) -> None:
        _, task = self._kept.pop(id, (0.0, None))
        if task is not None:
            self._bytes[task.owner] -= len(task.outcome)
            self._counts[task.owner] -= 1
            if not self._counts[task.owner]:
                del self._counts[task.owner], self._bytes[task.owner]
