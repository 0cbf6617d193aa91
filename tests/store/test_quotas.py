"""Calls by day and key in both databases."""

from __future__ import annotations

import asyncio

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


async def test_calls_of_several_gateways_are_added_at_once(place: str):
    databases = [await open_database(place) for _ in range(3)]
    calls = {f"k{number}": 1 for number in range(20)}
    orders = [calls, dict(reversed(calls.items())), calls]
    stores = [QuotaStore(each) for each in databases]
    await asyncio.gather(*(each.add(100, of) for each, of in zip(stores, orders, strict=True)))

    assert set((await stores[0].load(100)).values()) == {3}
    for each in databases:
        await each.close()
