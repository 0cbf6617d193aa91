"""The row that states to which gateway key a database belongs, and the keys that it replaced.

A gateway with another key could not open what this key has sealed: credentials, the arguments of
approvals, and the states of its clients.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import insert, inspect, select

from interlock.auth.gateway_key import FILE_NAME, VARIABLE, GatewayKey, RetiredKey
from interlock.errors import ConfigError
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database, connect_database, open_database
from interlock.store.database.location import find, folder_beside, public
from interlock.store.database.on_conflict import KEEP_EXISTING
from interlock.store.database.tables import gateway_key, retired_keys

_OWNER = select(gateway_key.c.fingerprint)


async def load_key(location: str | Path | None) -> GatewayKey:
    """Load the gateway's key for a database; create it only if the database belongs to no key.

    A new key would be of no use for the database of a key that was lost, and would hide the loss.

    Raises:
        ConfigError: The database belongs to a key that is missing; or see `GatewayKey.load`.
        StoreError: The key is missing, and the database cannot be read.
    """
    folder = folder_beside(location)
    if not GatewayKey.exists(folder) and (owner := await _owner_of(location)) is not None:
        raise ConfigError(
            f"{public(location)}: this database belongs to gateway key {owner[:8]}…, which is"
            f" missing; put it into {folder / FILE_NAME}, or set {VARIABLE}"
        )
    return GatewayKey.load(folder)


async def _owner_of(location: str | Path | None) -> str | None:
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
