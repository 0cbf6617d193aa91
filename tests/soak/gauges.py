"""What may not grow: looked at again and again, held to a slope at the end. Needs /proc."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median

WARM_UP = 0.25  # of the samples; what grows in them only is not held against us
MB_PER_100K_CALLS = 1.0
THINGS = 2.0  # descriptors, tasks, ... that all of a run may add, which is noise
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass
class Gauge:
    """One thing that is counted.

    Attributes:
        what: In words.
        look: Counts it.
        per_calls: Its growth is told and limited for so many calls; None: for the whole run, and
            it is looked at only when there is no work, with which it comes and goes.
        limit: Most that it may grow.
        seen: What was counted, and after how many calls.
    """

    what: str
    look: Callable[[], float]
    per_calls: int | None = None
    limit: float = THINGS
    seen: list[tuple[float, float]] = field(default_factory=list)

    def add(self, calls: int, *, at_rest: bool) -> None:
        """Look, if this is a time for it."""
        if at_rest or self.per_calls is not None:
            self.seen.append((calls, self.look()))

    @property
    def growth(self) -> float:
        """By the line that fits best."""
        warm = self.seen[int(len(self.seen) * WARM_UP) :]
        calls, counts = zip(*warm, strict=True)
        slope = linear_regression(calls, counts).slope
        return slope * (self.per_calls or calls[-1] - calls[0])

    def line(self) -> str:
        """Tell what it was, what it is and how it grew."""
        warm = [count for _, count in self.seen[int(len(self.seen) * WARM_UP) :]]
        tenth = max(1, len(warm) // 10)
        span = f"{median(warm[:tenth]):9.1f} -> {median(warm[-tenth:]):9.1f}"
        per = f"per {self.per_calls:,} calls" if self.per_calls else "in all"
        verdict = "ok" if self.growth < self.limit else "GROWS"
        told = f"{self.growth:+.2f} {per}; may be {self.limit:g}"
        return f"{self.what:24} {span}   {told:42} {verdict}"


def of_this_process() -> list[Gauge]:
    """Everything that we could leak."""
    return [
        Gauge("memory, MB", memory_of_ours, 100_000, MB_PER_100K_CALLS),
        Gauge("descriptors", lambda: len(os.listdir("/proc/self/fd"))),  # noqa: PTH208 - names do
        Gauge("tasks", lambda: len(asyncio.all_tasks())),
        Gauge("threads", threading.active_count),
        Gauge("children", lambda: len(children())),
    ]


def of_server(what: str, id: int) -> list[Gauge]:
    """What can be seen of another process."""
    return [
        Gauge(f"{what}: memory, MB", lambda: memory(str(id)), 100_000, MB_PER_100K_CALLS),
        Gauge(f"{what}: descriptors", lambda: len(os.listdir(f"/proc/{id}/fd"))),  # noqa: PTH208
        Gauge(f"{what}: threads", lambda: len(os.listdir(f"/proc/{id}/task"))),  # noqa: PTH208
    ]


def memory_of_ours() -> float:
    """Our resident memory, in MB, without what the allocator keeps after a large message."""
    with suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return memory("self")


def memory(process: str) -> float:
    """Its resident memory, in MB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_MB


def children() -> list[int]:
    """The processes that we have started, in whichever thread."""
    tasks = Path("/proc/self/task").iterdir()
    return [int(id) for task in tasks for id in (task / "children").read_text().split()]
