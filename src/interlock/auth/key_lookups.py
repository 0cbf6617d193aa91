"""Look-ups in the database of keys that are not in memory, because they may be new.

1. Made-up keys cost the database little: look-ups share one rate limit, and run one at a time.
2. The rate limit counts well-formed keys that were not looked up lately, whether their id exists
   or not. So the time of a refusal does not reveal which ids exist.
3. A slow database delays a refusal by `DEADLINE` at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256

from interlock.auth import key_format
from interlock.errors import InterlockError, UnknownKey

INTERVAL = 0.2  # seconds between two look-ups, on average
BURST = 10
DEADLINE = 0.5  # seconds that a request waits for a look-up
MAX_REMEMBERED = 1_000  # recent look-ups; their keys are not looked up again


class KeyLookups:
    """Rate-limited look-ups of keys.

    Args:
        look_up: Loads the key with an id into memory; raises `UnknownKey` if no key has it.
        clock: The monotonic clock, in seconds.
    """

    def __init__(
        self, look_up: Callable[[str], Awaitable[None]], clock: Callable[[], float]
    ) -> None:
        self._look_up = look_up
        self._clock = clock
        self._running: dict[bytes, asyncio.Task[None]] = {}  # by the hash of the key
        self._remembered: dict[bytes, None] = {}  # oldest first
        self._full_at = float("-inf")  # the time at which `BURST` look-ups are available again
        self._one_at_a_time = asyncio.Lock()

    def begin(self, key: bytes) -> Awaitable[object] | None:
        """Look a key up, or join its look-up.

        Returns:
            An awaitable that ends with the look-up; None if the text is not a key, was looked up
            lately, or is over the rate limit.
        """
        hash = sha256(key).digest()
        if hash in self._remembered:
            return None
        lookup = self._running.get(hash)
        if lookup is None:
            id = key_format.id_of(key.decode("latin-1"))
            if id is None or not self._may_begin():
                return None
            lookup = self._running[hash] = asyncio.create_task(self._run(id, hash))
        return asyncio.wait((lookup,), timeout=DEADLINE)

    def _may_begin(self) -> bool:
        """Use one look-up of the rate limit; return False if none is left."""
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
            return  # the next request with this key looks it up again
        finally:
            del self._running[hash]
        self._remembered[hash] = None
        if len(self._remembered) > MAX_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
