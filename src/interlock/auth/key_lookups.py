"""Database look-ups of keys that are not in memory, because they may be new.

1. Invented keys cause little load: all look-ups share a rate limit, and run one after the other.
2. Each well-formed key that was not looked up recently uses the rate limit, whether or not its id
   exists. So the time of a refusal does not reveal which ids exist.
3. A slow database delays a refusal by at most `DEADLINE` seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256

from interlock import aio
from interlock.auth import key_format
from interlock.errors import InterlockError, UnknownKey

INTERVAL = 0.2  # seconds between two look-ups, on average
BURST = 10  # look-ups that may start at once
DEADLINE = 0.5  # seconds that a request waits for a look-up
MAX_REMEMBERED = 1_000  # recently looked-up keys, which are not looked up again


class KeyLookups:
    """Looks up keys in the database, within a rate limit.

    Args:
        look_up: Loads the key with an id into memory; raises `UnknownKey` if no key has this id.
        clock: The monotonic clock, in seconds.
    """

    def __init__(
        self, look_up: Callable[[str], Awaitable[None]], clock: Callable[[], float]
    ) -> None:
        self._look_up = look_up
        self._clock = clock
        self._running: dict[bytes, asyncio.Task[None]] = {}  # by the key's hash
        self._remembered: dict[bytes, None] = {}  # oldest first
        self._full_at = float("-inf")  # when `BURST` look-ups will be available again
        self._one_at_a_time = asyncio.Lock()

    def begin(self, key: bytes) -> Awaitable[object] | None:
        """Start looking up a key, or join a look-up that is already running.

        Returns:
            An awaitable that completes with the look-up; None if the text is not a key, was looked
            up recently, or exceeds the rate limit.
        """
        hash = sha256(key).digest()
        if hash in self._remembered:
            return None
        lookup = self._running.get(hash)
        if lookup is None:
            id = key_format.id_of(key.decode("latin-1"))
            if id is None or not self._may_begin():
                return None
            lookup = self._running[hash] = aio.start_detached(self._run(id, hash))
        return asyncio.wait((lookup,), timeout=DEADLINE)

    def _may_begin(self) -> bool:
        """Take a look-up from the rate limit; return False if none is available."""
        now = self._clock()
        full_at = max(self._full_at, now) + INTERVAL
        if full_at - now > BURST * INTERVAL:
            return False
        self._full_at = full_at
        return True

    async def _run(self, id: str, hash: bytes) -> None:
        try:
            async with self._one_at_a_time:
                await self._look_up(id)
        except UnknownKey:
            pass
        except InterlockError:
            return  # the next request with this key retries the look-up
        finally:
            del self._running[hash]
        self._remembered[hash] = None
        if len(self._remembered) > MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
