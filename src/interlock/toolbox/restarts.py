"""The back-off before a server is started again: 0, 0.5, 1, 2 … 30 s; at most 5 starts a minute."""

from __future__ import annotations

from collections import deque
from time import monotonic

from interlock.aio import Backoff
from interlock.errors import ServerUnavailable
from interlock.toolbox.pool import SHARED, Key, owner_of

FIRST_BACKOFF = 0.5  # seconds
LONGEST_BACKOFF = 30.0  # seconds
MAX_STARTS = 5
STARTS_WINDOW = 60.0  # seconds
MAX_KEYS = 1_000  # connection keys whose failed starts are remembered
PER_CALL: Key = ("call",)


class Restarts:
    """Counts the failed starts and lost connections for one connection key.

    Times are in seconds of the monotonic clock.

    Attributes:
        reason: The reason for the last failure or loss, without secrets.
        is_again: Whether the next start follows a failure or a loss.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.is_again = False
        self._ended: deque[float] = deque(maxlen=MAX_STARTS)
        self._backoff = Backoff(FIRST_BACKOFF, LONGEST_BACKOFF)
        self._not_before = 0.0

    def wait(self, now: float, *, limited: bool = True) -> float:
        """Return the seconds until the next start may begin; 0 or less if it may begin now.

        Args:
            now: The current time.
            limited: Whether to allow only `MAX_STARTS` within `STARTS_WINDOW`.
        """
        wait = self._not_before - now
        if limited and len(self._ended) == MAX_STARTS:
            wait = max(wait, self._ended[0] + STARTS_WINDOW - now)
        return wait

    def failed(self, now: float, reason: str) -> None:
        """Record a failed start, which doubles the back-off."""
        self.reason, self.is_again = reason, True
        self._ended.append(now)
        self._not_before = now + self._backoff.next_pause(now)

    def succeeded(self) -> None:
        self._backoff.reset()

    def lost(self, now: float, reason: str) -> None:
        """Record the loss of a connection that had worked; the next start may begin at once."""
        self.reason, self.is_again = reason, True
        self._ended.append(now)
        self._not_before = now


class RestartsByKey:
    """The starts of all connections to one server, and the back-off for each connection key.

    Args:
        server: The server's name in the toolbox.

    Attributes:
        count: Number of connections that were opened or tried so far.
        again: Number of those that followed a failed start or a lost connection.
    """

    def __init__(self, server: str) -> None:
        self.count = 0
        self.again = 0
        self._server = server
        self._by_key: dict[Key, Restarts] = {}

    @property
    def retry_in(self) -> float:
        """Seconds until the shared connection may be opened again; 0 if it may be opened now."""
        return self.wait(SHARED)

    def wait(self, key: Key) -> float:
        """Return the seconds until a connection with a key may be opened; 0 if it may be now."""
        key = _counted_key(key)
        found = self._by_key.get(key)
        return 0.0 if found is None else max(0.0, found.wait(monotonic(), limited=key != PER_CALL))

    def of(self, key: Key) -> Restarts:
        key = _counted_key(key)
        found = self._by_key.pop(key, None) or Restarts()
        self._by_key[key] = found  # moved to the end, as the most recently used key
        if len(self._by_key) > MAX_KEYS:
            del self._by_key[next(each for each in self._by_key if each != SHARED)]
        return found

    def begin(self, key: Key) -> None:
        """Record a start that begins now.

        Raises:
            ServerUnavailable: The back-off has not passed.
        """
        restarts, wait = self.of(key), self.wait(key)
        if wait > 0:
            reason = f"{restarts.reason}; next try in {wait:.1f} s"
            raise ServerUnavailable(self._server, reason, "breaker_open", wait)
        self.count += 1
        self.again += restarts.is_again
        restarts.is_again = False

    def forget(self, owner: str) -> None:
        for key in [each for each in self._by_key if owner_of(each) == owner]:
            del self._by_key[key]

    def clear(self) -> None:
        self._by_key.clear()


def _counted_key(key: Key) -> Key:
    """Return the key under which starts are counted; single-call connections share a key."""
    return PER_CALL if key[:1] in (("call",), ("spare",)) else key
