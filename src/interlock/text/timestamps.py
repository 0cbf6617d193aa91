"""Points in time as integers: microseconds since 1970, UTC."""

from __future__ import annotations

import time


def now_micros() -> int:
    """Return the time in microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def rfc3339(micros: int | None) -> str | None:
    """Return a time as "2026-11-22T10:00:00.000Z"; None for None."""
    if micros is None:
        return None
    seconds, rest = divmod(micros, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest // 1000:03d}Z"
