"""Times in the tables of both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from sqlalchemy import insert, select

from interlock.store.database.database import open_database
from interlock.store.database.tables import conversations

HERE = datetime(2026, 1, 2, 1, 30, tzinfo=timezone(timedelta(hours=2)))


async def test_a_time_in_any_zone_is_read_back_as_the_same_moment_in_utc(place: str):
    database = await open_database(place)
    row = {"id": "c1", "title": "", "model": "", "created": HERE, "updated": HERE}
    await database.write(lambda it: it.execute(insert(conversations).values(row)))

    async def read(connection):
        return (await connection.execute(select(conversations.c.created))).scalar_one()

    found = await database.read(read)
    await database.close()

    assert found == HERE
    assert found.utcoffset() == timedelta(0)
    assert found.astimezone(UTC).isoformat() == "2026-01-01T23:30:00+00:00"
