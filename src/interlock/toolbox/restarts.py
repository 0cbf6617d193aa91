"""When a server may be started again: at once, then after 0.5, 1, 2 … 30 s; 5 times a minute."""

from __future__ import annotations

from collections import deque

from interlock.aio import Backoff

FIRST_BACKOFF = 0.5  # seconds
LONGEST_BACKOFF = 30.0  # seconds
MAX_STARTS = 5
STARTS_WINDOW = 60.0  # seconds


class Restarts:
    """The starts of one connection that failed, or whose connection was lost.

    Times are in seconds of the monotonic clock.

    Attributes:
        reason: Why the last one failed or was lost, without secrets.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._ended: deque[float] = deque(maxlen=MAX_STARTS)
        self._backoff = Backoff(FIRST_BACKOFF, LONGEST_BACKOFF)
        self._not_before = 0.0

    def wait(self, now: float, *, limited: bool = True) -> float:
        """Return the seconds until the next start may begin; 0 or less for now.

        Args:
            now: The time.
            limited: Allow only `MAX_STARTS` within `STARTS_WINDOW`.
        """
        wait = self._not_before - now
        if limited and len(self._ended) == MAX_STARTS:
            wait = max(wait, self._ended[0] + STARTS_WINDOW - now)
        return wait

    def failed(self, now: float, reason: str) -> None:
        """Count a failed start; the next one has to wait for twice as long."""
        self.reason = reason
        self._ended.append(now)
        self._not_before = now + self._backoff.next_pause(now)

    def succeeded(self) -> None:
        """Forget earlier failures."""
        self._backoff.reset()

    def lost(self, now: float, reason: str) -> None:
        """Count a connection that worked and has ended; the next start may begin at once."""
        self.reason = reason
        self._ended.append(now)
        self._not_before = now
