"""Calls by day and key in both databases."""

from __future__ import annotations

from interlock.store.database.database import open_database
from interlock.store.quotas import KEPT_DAYS, QuotaStore


async def test_calls_are_added_to_the_count_of_the_day_and_old_days_are_deleted(place: str):
    database = await open_database(place)
    store = QuotaStore(database)
    await store.add(100, {"k1": 2, "k2": 1})
    await store.add(100, {"k1": 3})
    assert await store.load(100) == {"k1": 5, "k2": 1}

    await store.add(100 + KEPT_DAYS, {"k1": 1})
    assert await store.load(100) == {"k1": 5, "k2": 1}
    await store.add(101 + KEPT_DAYS, {"k1": 1})
    assert await store.load(100) == {}
    await database.close()
