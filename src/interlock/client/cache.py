"""The cache for results that a server allows its clients to cache."""

from __future__ import annotations

from time import monotonic

MAX_ENTRIES = 256
MAX_RESOURCE = 1024 * 1024  # characters of a cached resource
MAX_TTL = 24 * 3600.0  # seconds; a longer time to live is shortened


class Cache:
    """Stores results by method and key, such as a URI; each result has its own expiry.

    A cache belongs to one principal's connection, so it may store private and public results.

    Attributes:
        changes: The number of invalidations.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._entries: dict[tuple[str, str], tuple[float, object]] = {}

    def get(self, method: str, key: str = "") -> object | None:
        until, kept = self._entries.get((method, key), (0.0, None))
        return kept if monotonic() < until else None

    def keep(
        self, value: object, ttl: float, method: str, key: str = "", *, asked: int | None = None
    ) -> None:
        """Cache a value; evict the oldest value if the cache is full.

        Args:
            value: The decoded result.
            ttl: Seconds until the value expires; 0 or less caches nothing.
            method: The method of the request.
            key: The request's parameter that the result depends on, such as a URI.
            asked: The value of `changes` when the request was sent. A result that arrives after
                an invalidation may be outdated, so it is not cached.
        """
        if ttl <= 0 or asked not in (None, self.changes):
            return
        self._entries.pop((method, key), None)
        if len(self._entries) >= MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        self._entries[method, key] = (monotonic() + min(ttl, MAX_TTL), value)

    def forget(self, method: str, key: str | None = None) -> None:
        """Invalidate the entry for a method and key; if key is None, all the method's entries."""
        self.changes += 1
        for entry in [each for each in self._entries if each[0] == method]:
            if key is None or entry[1] == key:
                del self._entries[entry]

    def clear(self) -> None:
        self.changes += 1
        self._entries.clear()
