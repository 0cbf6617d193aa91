"""The row that states to which gateway key a database belongs.

A gateway with another key could not open what this key has sealed: credentials, the arguments of
approvals, and the states of its clients.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import insert, select

from interlock.auth.gateway_key import GatewayKey
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database, open_database
from interlock.store.database.on_conflict import KEEP_EXISTING
from interlock.store.database.tables import gateway_key


async def open_owned(location: str | Path | None, key: GatewayKey) -> Database:
    """Open a database like `open_database`, for a gateway's key.

    Raises:
        ConfigError: The database belongs to another gateway key.
        StoreError: The database cannot be opened.
    """
    database = await open_database(location)
    try:
        await claim(database, key)
    except BaseException:
        await database.close()
        raise
    return database


async def claim(database: Database, key: GatewayKey) -> None:
    """Record the key in a database that does not belong to a key yet.

    Raises:
        ConfigError: The database belongs to another gateway key.
        StoreError: The database cannot be read or written.
    """
    own = select(gateway_key.c.fingerprint)
    if (found := await database.read(lambda each: each.scalar(own))) is None:
        row = {"id": 1, "fingerprint": key.fingerprint}

        async def work(connection: AsyncConnection) -> str:
            # Another gateway may start at the same time.
            await connection.execute(insert(gateway_key).values(row).ext(KEEP_EXISTING))
            return str(await connection.scalar(own))

        found = await database.write(work)
    key.check_owner(found, database.location)
