"""What a key has spent today survives a restart, and is counted once."""

from __future__ import annotations

import logging

import pytest

from interlock.config.gateway import KeyLimits, Limits
from interlock.errors import LimitExceeded, StoreError
from interlock.layers.limits import DAY, Limiter
from interlock.layers.quotas import Quotas
from interlock.store.database.database import open_database
from interlock.store.quotas import KEPT_DAYS, QuotaStore
from tests.layers.support import Upstream, call_of

NOON = 20_000 * DAY + DAY / 2


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def wall(self) -> float:
        return NOON + self.now


def limiter(time: Time, limit: int = 5) -> Limiter:
    limits = Limits(per_key=KeyLimits(per_day=limit))
    return Limiter(limits, clock=time.clock, wall=time.wall)


async def call(limiter: Limiter, key: str = "k1") -> None:
    await limiter.around(Upstream().handle)(call_of(key=key))


async def test_quota_continues_after_a_restart(tmp_path):
    time = Time()
    database = await open_database(tmp_path / "q.db")
    for calls in (3, 2):
        limits = limiter(time)
        async with Quotas(QuotaStore(database), lambda: limits.days, wall=time.wall).running():  # noqa: B023
            for _ in range(calls):
                await call(limits)
    limits = limiter(time)
    quotas = Quotas(QuotaStore(database), lambda: limits.days, wall=time.wall)
    async with quotas.running():
        with pytest.raises(LimitExceeded, match=r"too many calls today \(limit 5\)"):
            await call(limits)
        await call(limits, "k2")
        await quotas.save()
        time.now += DAY
        await call(limits)
    assert await QuotaStore(database).load(20_000) == {"k1": 5, "k2": 1}
    assert await QuotaStore(database).load(20_001) == {"k1": 1}
    await database.close()


async def test_counts_of_two_gateways_are_added(tmp_path):
    time = Time()
    database = await open_database(tmp_path / "q.db")
    store = QuotaStore(database)
    one, other = limiter(time), limiter(time)
    first = Quotas(store, lambda: one.days, wall=time.wall)
    second = Quotas(store, lambda: other.days, wall=time.wall)
    await first.load()
    await second.load()
    for _ in range(2):
        await call(one)
        await call(other)
        await first.save()
        await second.save()
    assert await store.load(20_000) == {"k1": 4}

    await store.add(20_001 + KEPT_DAYS, {"k1": 1})
    assert await store.load(20_000) == {}
    await database.close()


async def test_quota_holds_for_all_gateways_of_a_database(tmp_path):
    time = Time()
    database = await open_database(tmp_path / "q.db")
    database.is_shared = True  # as PostgreSQL
    store = QuotaStore(database)
    one, other = limiter(time), limiter(time)
    first = Quotas(store, lambda: one.days, wall=time.wall)
    second = Quotas(store, lambda: other.days, wall=time.wall)
    await first.load()
    await second.load()
    for _ in range(3):
        await call(one)
    await first.save()  # and it is killed
    await call(other)
    await second.save()
    await call(other)
    with pytest.raises(LimitExceeded, match=r"too many calls today \(limit 5\)"):
        await call(other)
    await second.save()
    assert await store.load(20_000) == {"k1": 5}

    time.now += DAY
    await call(other)
    await second.save()
    assert await store.load(20_001) == {"k1": 1}
    await database.close()


async def test_calls_that_cannot_be_saved_are_saved_later(tmp_path, caplog, monkeypatch):
    time = Time()
    database = await open_database(tmp_path / "q.db")
    store, limits = QuotaStore(database), limiter(time)
    quotas = Quotas(store, lambda: limits.days, wall=time.wall)
    async with quotas.running():
        await call(limits)
        with monkeypatch.context() as patch:
            patch.setattr(store, "add", _fail)
            with caplog.at_level(logging.WARNING):
                await quotas._save_or_warn()
        await call(limits)

    assert "not saved yet: the database is away" in caplog.text
    assert await store.load(20_000) == {"k1": 2}
    await database.close()


async def _fail(*_: object) -> None:
    raise StoreError("the database is away")
