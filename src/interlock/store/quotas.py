"""A store of the number of calls per day and key, so that a restart does not reset quotas."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import delete, insert, select

from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.on_conflict import OnConflict
from interlock.store.database.tables import counters

SCOPE = "calls"
KEPT_DAYS = 7


_ADD = OnConflict("(scope, name, day) DO UPDATE SET value = counters.value + excluded.value")


class QuotaStore:
    """A store of the number of calls per day and key. Every method may raise a `StoreError`.

    Attributes:
        is_shared: Whether other gateways may add calls.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_shared = database.is_shared

    async def load(self, day: int) -> dict[str, int]:
        """Return the number of calls on one day, by key.

        Args:
            day: The number of the day since 1970, UTC.
        """
        columns = counters.c
        query = select(columns.name, columns.value).where(
            columns.scope == SCOPE, columns.day == day
        )

        async def work(connection: AsyncConnection) -> dict[str, int]:
            return {row.name: row.value for row in await connection.execute(query)}

        return await self._database.read(work)

    async def add(self, day: int, calls: Mapping[str, int]) -> None:
        """Add calls to a day's counts, and delete the counts of old days."""
        columns = counters.c

        async def work(connection: AsyncConnection) -> None:
            for name in sorted(calls):  # in one order, so that gateways do not block each other
                row = {"scope": SCOPE, "name": name, "day": day, "value": calls[name]}
                await connection.execute(insert(counters).values(row).ext(_ADD))
            await connection.execute(delete(counters).where(columns.day < day - KEPT_DAYS))

        await self._database.write(work)
