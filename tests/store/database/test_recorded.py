"""Changes that are made together with their audit record, or not at all."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, update

from interlock.store.database.claims import Claim
from interlock.store.database.database import open_database
from interlock.store.database.recorded import claim_of, make_change
from interlock.store.database.tables import counters
from interlock.store.quotas import QuotaStore

ROW = {"scope": "calls", "name": "k1", "day": 1, "value": 1}
CHANGE = update(counters).where(counters.c.name == "k1", counters.c.value == 1).values(value=2)


async def test_change_is_made_only_if_the_row_is_unchanged(place: str):
    database = await open_database(place)
    assert await make_change(database, claim_of(insert(counters).values(ROW)), None)

    changed = [await make_change(database, claim_of(CHANGE), None) for _ in range(2)]

    assert changed == [True, False]
    assert await QuotaStore(database).load(1) == {"k1": 2}
    await database.close()


async def test_further_statements_run_only_if_the_change_succeeds(place: str):
    database = await open_database(place)
    await make_change(database, claim_of(insert(counters).values(ROW)), None)
    sql = "INSERT INTO counters (scope, name, day, value) VALUES (?, ?, ?, ?)"
    then = [(sql, [("calls", "k2", 1, 7)])]

    for _ in range(2):  # the second would insert the same row again
        await make_change(database, claim_of(CHANGE, *then), None)

    assert await QuotaStore(database).load(1) == {"k1": 2, "k2": 7}
    await database.close()


async def test_a_recorded_change_is_left_to_the_writer_of_its_record(sqlite: str):
    database = await open_database(sqlite)

    async def refuse(claim: Claim, *about: Any) -> None:
        assert about == ("user:anna",)
        claim.has_failed = True

    assert not await make_change(database, claim_of(CHANGE), refuse, "user:anna")
    await database.close()
