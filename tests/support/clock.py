"""Clocks that a test moves, and event loops in which waiting takes no time.

`SteppedLoop` has no IO: its time jumps to the next timer whenever nothing else is to be done.
`ClockLoop` has IO, and real time except inside `Clock.flying`.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

TICK = 1e-9  # seconds; no two things happen at the very same time

Ready = tuple[selectors.SelectorKey, int]
Select = Callable[[float | None], list[Ready]]


class SetClock:
    """A monotonic clock that only the test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class SteppedLoop(asyncio.SelectorEventLoop):
    """A loop that jumps to its next timer when there is nothing else to do.

    It fails when nothing can happen any more, so that a call that hangs is an error at once.
    """

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_NoWaiting(self))

    def time(self) -> float:
        return self.now


class _NoWaiting(selectors.SelectSelector):
    def __init__(self, loop: SteppedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Ready]:
        if timeout is None:
            raise AssertionError("every task waits, and no timer is set")
        self._loop.now += max(timeout, TICK)
        return []


class Clock:
    """Seconds since some moment. When time flies, they pass as soon as nothing happens."""

    def __init__(self) -> None:
        self._ahead = 0.0  # of the real clock
        self._grace: float | None = None

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    @contextmanager
    def flying(self, grace: float = 0.01) -> Iterator[None]:
        """Let time fly in here.

        Args:
            grace: Real seconds that what is on its way, from another process too, may take.
        """
        self._grace = grace
        try:
            yield
        finally:
            self._grace = None

    @property
    def flies(self) -> bool:
        """Whether waiting takes no time."""
        return self._grace is not None

    def select(self, select: Select, timeout: float | None) -> list[Ready]:
        """Wait for descriptors by `select`, or for the time to pass."""
        if self._grace is None or timeout is None or timeout <= self._grace:
            return select(timeout)
        ready = select(self._grace)
        if not ready:
            self._ahead += timeout - self._grace
        return ready


class _Selector(selectors.DefaultSelector):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[Ready]:
        return self._clock.select(super().select, timeout)


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop on a clock of its own."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(_Selector(self.clock))

    def time(self) -> float:
        return self.clock()

    def everywhere(self) -> AbstractContextManager[None]:
        """Let everything in the package that reads the monotonic clock read this one."""
        return _everywhere(self.clock)


def run_stepped(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on a `SteppedLoop`, whose time is that of the whole package."""
    loop = SteppedLoop()
    with _everywhere(loop.time), asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work)


@contextmanager
def _everywhere(clock: Callable[[], float]) -> Iterator[None]:
    changed = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("interlock") and vars(module).get("monotonic") is time.monotonic
    ]
    for module in changed:
        vars(module)["monotonic"] = clock
    try:
        yield
    finally:
        for module in changed:
            vars(module)["monotonic"] = time.monotonic
