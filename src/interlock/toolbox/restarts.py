"""When a server may be started again: at once, then after 0.5, 1, 2 … 30 s; 5 times a minute."""

from __future__ import annotations

from collections import deque

from interlock.aio import Backoff

FIRST_BACKOFF = 0.5  # seconds
LONGEST_BACKOFF = 30.0  # seconds
MAX_STARTS = 5
STARTS_WINDOW = 60.0  # seconds


class Restarts:
    """The starts of one connection. Times are in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._starts: deque[float] = deque()
        self._backoff = Backoff(FIRST_BACKOFF, LONGEST_BACKOFF)
        self._not_before = 0.0

    def wait(self, now: float) -> float:
        """Return the seconds until the next start may begin; 0 or less for now."""
        while self._starts and self._starts[0] <= now - STARTS_WINDOW:
            self._starts.popleft()
        wait = self._not_before - now
        if len(self._starts) >= MAX_STARTS:
            wait = max(wait, self._starts[0] + STARTS_WINDOW - now)
        return wait

    def begin(self, now: float, *, limited: bool = True) -> None:
        """Count a start, unless the number of starts is not limited."""
        if limited:
            self._starts.append(now)

    def failed(self, now: float) -> None:
        """Count a failed start; the next one has to wait for twice as long."""
        self._not_before = now + self._backoff.next_pause(now)

    def succeeded(self) -> None:
        """Forget earlier failures."""
        self._backoff.reset()

    def lost(self, now: float) -> None:
        """Allow the next start at once: a connection that worked has ended."""
        self._not_before = now
