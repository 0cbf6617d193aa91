"""What the main thread of a page does, by Chromium's own trace."""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Page

CATEGORIES = ["toplevel", "devtools.timeline", "disabled-by-default-devtools.timeline"]


class Tasks:
    """The trace of the main thread of a page."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def processor(self) -> float:
        """Return the seconds of processor time."""
        return sum(each.get("tdur", 0) for each in self._named("RunTask")) / 1e6

    def frames(self) -> list[float]:
        """Return the seconds of processor time of the tasks that draw a frame, sorted."""
        drawn = sorted(each["ts"] for each in self._named("FireAnimationFrame"))
        found = []
        for task in self._named("RunTask"):
            at = bisect(drawn, task["ts"])
            if at < len(drawn) and drawn[at] < task["ts"] + task["dur"]:
                found.append(task.get("tdur", 0) / 1e6)
        return sorted(found)

    def longest(self) -> float:
        """Return the seconds of processor time of the longest task."""
        return max(each.get("tdur", 0) for each in self._named("RunTask")) / 1e6

    def growth(self) -> float:
        """Return the processor time of the last quarter of the time, to that of the first."""
        tasks = sorted(self._named("RunTask"), key=lambda each: each["ts"])
        begin, end = tasks[0]["ts"], tasks[-1]["ts"]
        quarters = [0.0] * 4
        for each in tasks:
            quarters[min(3, int(4 * (each["ts"] - begin) / (end - begin)))] += each.get("tdur", 0)
        return quarters[3] / quarters[0]

    def over(self, milliseconds: float) -> int:
        """Return how many tasks took more processor time than this."""
        return sum(each.get("tdur", 0) > milliseconds * 1_000 for each in self._named("RunTask"))

    def count(self, name: str) -> int:
        return sum(1 for _ in self._named(name))

    def _named(self, name: str) -> Iterator[dict[str, Any]]:
        mains = {
            (each["pid"], each["tid"])
            for each in self.events
            if each["name"] == "thread_name" and each["args"].get("name") == "CrRendererMain"
        }
        for each in self.events:
            if each["name"] == name and (each["pid"], each["tid"]) in mains:
                yield each


@asynccontextmanager
async def traced(launched: Browser, page: Page) -> AsyncIterator[Tasks]:
    tasks = Tasks()
    await launched.start_tracing(page=page, categories=CATEGORIES)
    yield tasks
    tasks.events = json.loads(await launched.stop_tracing())["traceEvents"]
