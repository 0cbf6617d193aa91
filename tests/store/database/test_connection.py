"""Connections that coroutines use, and what they rely on in SQLAlchemy."""

from __future__ import annotations

import asyncio

import sqlalchemy.util
from sqlalchemy import create_engine, text

from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import open_database

CREATE = text("CREATE TABLE half (done INTEGER)")


async def test_work_that_a_closing_event_loop_cancels_is_rolled_back(place: str):
    database = await open_database(place)
    begun = asyncio.Event()

    async def work(connection: AsyncConnection) -> None:
        await connection.execute(CREATE)
        begun.set()
        await asyncio.Event().wait()

    writing = asyncio.create_task(database.write(work))
    await begun.wait()
    for task in [writing, *database._running]:
        task.cancel()
    await asyncio.wait([writing])

    assert writing.cancelled()
    assert database._engine.pool.checkedout() == 0
    await database.write(lambda connection: connection.execute(CREATE))
    await database.close()


def test_sqlalchemy_has_the_undocumented_names_that_connections_use():
    """If this fails, SQLAlchemy has changed: see `interlock.store.database.connection`."""
    engine = create_engine("sqlite+aiosqlite:///unused.db")

    assert hasattr(sqlalchemy.util, "greenlet_spawn"), "SQLAlchemy has moved greenlet_spawn"
    assert engine.dialect.is_async, "create_engine no longer takes drivers for asyncio"
    assert type(engine.pool).__name__ == "AsyncAdaptedQueuePool", "its pool would block the loop"
