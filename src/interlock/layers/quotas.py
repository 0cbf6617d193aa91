"""Storage of the calls of each day in the database, every 10 s and at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import time

from interlock import aio
from interlock.errors import InterlockError
from interlock.layers.limits import DAY, DayCounter
from interlock.store.quotas import QuotaStore

SAVE_EVERY = 10.0  # seconds

_log = logging.getLogger("interlock.gateway")


class Quotas:
    """Loads what each key has spent today, and saves what it spends.

    Args:
        store: The database.
        counter: Returns the present counter of calls.
        wall: The wall clock, seconds since 1970.
    """

    def __init__(
        self,
        store: QuotaStore,
        counter: Callable[[], DayCounter],
        *,
        wall: Callable[[], float] = time,
    ) -> None:
        self._store = store
        self._counter = counter
        self._wall = wall
        self._day = 0
        self._saved: dict[str, int] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Load the calls of today, and save them until the end.

        Raises:
            StoreError: The database does not answer.
        """
        await self.load()
        try:
            async with aio.beside(self._run()):
                yield
        finally:
            await self._save_or_warn()

    async def load(self) -> None:
        self._day = self._today()
        self._saved = await self._store.load(self._day)
        self._counter().spent.update(self._saved)

    async def save(self) -> None:
        """Save what was spent since the last call.

        Raises:
            StoreError: The database does not answer; the next call saves it.
        """
        counter = self._counter()
        if self._today() != self._day:
            self._day, self._saved = self._today(), {}
        now = {str(key): int(count) for key, count in counter.spent.items()}
        added = {key: count - self._saved.get(key, 0) for key, count in now.items()}
        added = {key: count for key, count in added.items() if count}
        if added:
            await self._store.add(self._day, added)
            self._saved.update(now)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SAVE_EVERY)
            await self._save_or_warn()

    async def _save_or_warn(self) -> None:
        try:
            await self.save()
        except InterlockError as error:
            _log.warning("the calls of today are not saved yet: %s", error)

    def _today(self) -> int:
        return int(self._wall() // DAY)


__all__ = ["Quotas"]
