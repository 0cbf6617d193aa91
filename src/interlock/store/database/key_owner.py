"""The row that states to which gateway key a database belongs, and the keys that it replaced.

A gateway with another key could not open what this key has sealed: credentials, the arguments of
approvals, and the states of its clients.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import insert, inspect, select

from interlock.auth.gateway_key import GatewayKey, RetiredKey
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database, connect_database, open_database
from interlock.store.database.location import find
from interlock.store.database.on_conflict import KEEP_EXISTING
from interlock.store.database.tables import gateway_key, retired_keys

_OWNER = select(gateway_key.c.fingerprint)


async def owner_of(location: str | Path | None) -> str | None:
    """Return the fingerprint of the key that a database belongs to, if it exists and has one."""
    found = find(location)
    if isinstance(found, Path) and not found.exists():
        return None
    database = await connect_database(location)
    try:
        has_table = await database.read(
            lambda each: each.run_sync(lambda core: inspect(core).has_table(gateway_key.name))
        )
        return await database.read(lambda each: each.scalar(_OWNER)) if has_table else None
    finally:
        await database.close()


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
    """Record the key in a database that does not belong to a key yet; set the keys it replaced.

    Raises:
        ConfigError: The database belongs to another gateway key.
        StoreError: The database cannot be read or written.
    """
    if (found := await database.read(lambda each: each.scalar(_OWNER))) is None:
        row = {"id": 1, "fingerprint": key.fingerprint}

        async def work(connection: AsyncConnection) -> str:
            # Another gateway may start at the same time.
            await connection.execute(insert(gateway_key).values(row).ext(KEEP_EXISTING))
            return str(await connection.scalar(_OWNER))

        found = await database.write(work)
    key.check_owner(found, database.location)
    key.retired = await database.read(lambda connection: read_retired(connection, key))


async def read_retired(connection: AsyncConnection, key: GatewayKey) -> list[RetiredKey]:
    """Return the keys that this one replaced, the oldest first.

    Raises:
        ConfigError: A row was changed.
    """
    query = select(retired_keys).order_by(retired_keys.c.retired, retired_keys.c.fingerprint)
    rows = await connection.execute(query)
    return [RetiredKey.opened(row.sealed, row.fingerprint, key) for row in rows]
