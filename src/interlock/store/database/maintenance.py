"""Upgrades and checks of a database, for operators."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, text

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import ConfigError, StoreError
from interlock.store.database import creation, schema_version
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database, check_pages, connect_database, prepare_alone
from interlock.store.database.location import find, folder_beside
from interlock.store.database.tables import gateway_key

CREATED = "all tables"


async def pending(location: str | Path | None) -> tuple[str, list[str]]:
    """Return the version after `upgrade`, and what it would add to a database.

    The database is not changed.

    Raises:
        StoreError: The database cannot be read or upgraded.
    """
    if _is_new(location):
        return schema_version.REVISION, [CREATED]
    database = await connect_database(location)
    try:
        await database.read(lambda each: check_pages(each, database.location))
        return await database.read(lambda each: each.run_sync(_lacking, database.location))
    finally:
        await database.close()


async def upgrade(location: str | Path | None) -> tuple[str, list[str]]:
    """Create a database's tables, or add what those of an older version lack.

    It takes as long as it needs, unlike a program that opens the database.

    Returns:
        The version of the tables, and what was added.

    Raises:
        StoreError: The database cannot be upgraded; it was not changed.
    """
    database = await connect_database(location, is_new=_is_new(location), is_patient=True)

    async def work(connection: AsyncConnection) -> tuple[str, list[str]]:
        lacking = await connection.run_sync(_lacking, database.location)
        await prepare_alone(connection, database.location, on_request=True)
        return lacking

    try:
        await database.read(lambda each: check_pages(each, database.location))
        return await database.write(work)
    finally:
        await database.close()


async def check(location: str | Path | None) -> tuple[str, list[str]]:
    """Check a database, which is not changed.

    Returns:
        The location with its version, and one line for each problem.

    Raises:
        StoreError: The database cannot be read, or is not interlock's.
    """
    if _is_new(location):
        raise StoreError(f"{find(location)} does not exist yet: the first gateway creates it")
    database = await connect_database(location)
    try:
        revision, problems = await database.read(lambda each: each.run_sync(_problems, database))
        owner = await database.read(lambda each: each.scalar(_OWNER))
    finally:
        await database.close()
    folder = folder_beside(location)
    if owner is not None and not GatewayKey.exists(folder):
        problems.append(
            f"the gateway key {owner[:8]}… is missing: put it into {folder / 'gateway.key'},"
            " or set INTERLOCK_KEY"
        )
    elif owner is not None:
        try:
            GatewayKey.load(folder).check_owner(owner, database.location)
        except ConfigError as error:
            problems.append(str(error))
    return f"{database.location}: version {revision}", problems


_OWNER = gateway_key.select().with_only_columns(gateway_key.c.fingerprint)


def _is_new(location: str | Path | None) -> bool:
    found = find(location)
    return isinstance(found, Path) and not found.exists()


def _lacking(connection: Connection, location: str) -> tuple[str, list[str]]:
    """Return the version after an upgrade, and what the database lacks of it."""
    is_usable = creation.is_usable(connection, location)
    revision = creation.revision_of(connection)
    if revision is None:
        return schema_version.REVISION, [CREATED]
    if (
        is_usable and revision != schema_version.REVISION
    ):  # a newer version, with all that is needed
        return revision, []
    lacking = [creation.described(each) for each in creation.missing(connection)]
    return schema_version.REVISION, lacking


def _problems(connection: Connection, database: Database) -> tuple[str, list[str]]:
    """Return the version of a database, and what is wrong in it."""
    is_usable = creation.is_usable(connection, database.location)
    revision = creation.revision_of(connection)
    if revision is None:
        raise StoreError(f"{database.location} has no tables yet: run `interlock db upgrade`")
    problems = []
    if not is_usable:
        problems.append(f"it is older than this interlock ({schema_version.REVISION})")
    problems += [f"{creation.described(each)} is missing" for each in creation.missing(connection)]
    problems = [f"{each}: run `interlock db upgrade`" for each in problems]
    if connection.dialect.name == "sqlite":
        problems += [row[0] for row in connection.execute(_INTEGRITY) if row[0] != "ok"]
        problems += [
            f"{_rows(count, table)} to a row of {parent} that does not exist"
            for table, parent, count in connection.execute(_REFERENCES)
        ]
    return revision, problems


def _rows(count: int, table: str) -> str:
    return f"a row of {table} refers" if count == 1 else f"{count:,} rows of {table} refer"


_INTEGRITY, _REFERENCES = (
    text("PRAGMA integrity_check(20)"),
    text('SELECT "table", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2'),
)
