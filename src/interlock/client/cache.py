"""Answers that a server allows to be kept for a while."""

from __future__ import annotations

from time import monotonic

MAX_ENTRIES = 256
MAX_RESOURCE = 1024 * 1024  # characters of a resource that is kept
MAX_TTL = 24 * 3600.0  # seconds, whatever the server says


class Cache:
    """Results by method and what they depend on, such as a URI; each with its own end.

    One cache belongs to one connection of one principal, so scopes need no regard.

    Attributes:
        changes: How often something was forgotten.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._entries: dict[tuple[str, str], tuple[float, object]] = {}

    def get(self, method: str, key: str = "") -> object | None:
        """Give what is kept and still fresh."""
        until, kept = self._entries.get((method, key), (0.0, None))
        return kept if monotonic() < until else None

    def keep(
        self, value: object, ttl: float, method: str, key: str = "", *, asked: int | None = None
    ) -> None:
        """Keep a value for `ttl` seconds; 0 or less keeps nothing. The oldest makes room.

        Args:
            value: The answer.
            ttl: Seconds.
            method: What was asked.
            key: What the answer depends on.
            asked: `changes` when it was asked for. An answer that was on its way while
                something changed may be an old one, and is not kept.
        """
        if ttl <= 0 or asked not in (None, self.changes):
            return
        self._entries.pop((method, key), None)
        if len(self._entries) >= MAX_ENTRIES:
            del self._entries[next(iter(self._entries))]
        self._entries[method, key] = (monotonic() + min(ttl, MAX_TTL), value)

    def forget(self, method: str, key: str | None = None) -> None:
        """Forget one entry or, without `key`, all of a method."""
        self.changes += 1
        for entry in [each for each in self._entries if each[0] == method]:
            if key is None or entry[1] == key:
                del self._entries[entry]
