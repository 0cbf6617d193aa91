"""Storage of daily quotas: the calls of each day are saved to the database regularly.

If several gateways share the database, each reads the calls that the others have added, so that a
key whose calls move to another gateway does not get its quota twice.
"""

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

SAVE_EVERY = 10.0  # seconds between two saves
SHARE_EVERY = 2.0  # seconds, if several gateways share the database

_log = logging.getLogger("interlock.gateway")


class Quotas:
    """Loads how many calls each key has made today, and saves these numbers regularly.

    Args:
        store: The storage in the database.
        counter: Returns the current counter of calls.
        wall: The wall clock, in seconds since 1970.
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
        """Load today's calls; save them regularly, and when the context ends.

        Raises:
            StoreError: The database is unavailable.
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
        """Save the calls made since the last save.

        Raises:
            StoreError: The database is unavailable; the next call saves them.
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
        if self._store.is_shared:
            await self._take_totals(counter)

    async def _take_totals(self, counter: DayCounter) -> None:
        """Add the calls that other gateways have saved."""
        for key, total in (await self._store.load(self._day)).items():
            unsaved = counter.spent.get(key, 0) - self._saved.get(key, 0)
            if self._today() == self._day and unsaved >= 0:  # else the counter was just reset
                self._saved[key] = total
                counter.spent[key] = total + unsaved

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(SHARE_EVERY if self._store.is_shared else SAVE_EVERY)
            await self._save_or_warn()

    async def _save_or_warn(self) -> None:
        try:
            await self.save()
        except InterlockError as error:
            _log.warning("the calls of today are not saved yet: %s", error)

    def _today(self) -> int:
        return int(self._wall() // DAY)
