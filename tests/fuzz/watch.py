"""What every input of every target must keep to, beside what the target itself says."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time

LIMIT = 0.05  # seconds of the processor that one input may take
MAX_TEXT = 1000  # characters of an error


class TooSlow(AssertionError):
    """An input takes longer than `LIMIT`, each time it is tried."""


class Watch:
    """Runs a target, and looks at the clock.

    Args:
        target: Raises when something is wrong.
        limit: Seconds.

    Attributes:
        slowest: Seconds that the slowest input took so far.
    """

    def __init__(self, target: Callable[[bytes], None], limit: float = LIMIT) -> None:
        self._target = target
        self._limit = limit
        self.slowest = 0.0

    def __call__(self, data: bytes) -> None:
        """Try an input; if it is slow, retry twice, because other processes use the CPU."""
        seconds = self._once(data)
        for _ in range(2):
            if seconds <= self._limit:
                break
            gc.collect()
            seconds = min(seconds, self._once(data))
        self.slowest = max(self.slowest, seconds)
        if seconds > self._limit:
            took, limit = seconds * 1000, self._limit * 1000
            raise TooSlow(f"{len(data)} bytes take {took:.0f} ms; the limit is {limit:.0f} ms")

    def _once(self, data: bytes) -> float:
        began = thread_time()
        self._target(data)
        return thread_time() - began


def check_text(error: Exception | str) -> None:
    """Assert that an error is one printable line of limited length."""
    assert str(error).isprintable()
    assert len(str(error)) <= MAX_TEXT
