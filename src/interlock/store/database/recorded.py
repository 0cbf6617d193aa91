"""Changes of rows that are written in the same transaction as their audit records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cache

from sqlalchemy import Connection, Delete, Insert, Update
from sqlalchemy.engine.default import DefaultDialect

from interlock.store.database.claims import Claim, Row, Statement, numbered
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database

# Writes a change and its audit record. Called with the change, and the rows before and after it.
Record = Callable[..., Awaitable[None]]


def statement_of(change: Insert | Update | Delete) -> tuple[str, Row]:
    """Return a change as SQL with `?` for both SQLite and PostgreSQL, and its parameters."""
    compiled = change.compile(dialect=_dialect())
    return str(compiled), tuple(compiled.params[name] for name in compiled.positiontup or ())


def claim_of(change: Insert | Update | Delete, *then: Statement) -> Claim:
    """Return a claim for a change that must affect exactly one row.

    Args:
        change: The change of the row.
        then: Further statements for the same transaction.
    """
    return Claim(*statement_of(change), then)


async def make_change(
    database: Database, claim: Claim, record: Record | None, *about: object
) -> bool:
    """Make a change; return False if the row does not meet the change's condition.

    Args:
        database: The database that contains the row.
        claim: The change of the row.
        record: Writes the change together with its audit record; None to write no audit record.
        about: Further arguments for `record`.

    Raises:
        StoreError: Change and audit record were not written, or it is unknown whether they were.
    """
    await (record or unrecorded(database))(claim, *about)
    return not claim.has_failed


def unrecorded(database: Database) -> Record:
    """Return a `Record` that makes a change without writing an audit record."""

    async def change(claim: Claim, *_: object) -> None:
        claim.has_failed = not await database.write(lambda connection: _run(connection, claim))

    return change


async def _run(connection: AsyncConnection, claim: Claim) -> bool:
    return await connection.run_sync(_run_claim, claim)


def _run_claim(connection: Connection, claim: Claim) -> bool:
    has_numbers = connection.dialect.name == "postgresql"
    as_sql = numbered if has_numbers else str
    changed = connection.exec_driver_sql(as_sql(claim.sql), claim.row).rowcount
    if changed:
        for sql, rows in claim.then:
            connection.exec_driver_sql(as_sql(sql), list(rows))
    return bool(changed)


@cache
def _dialect() -> DefaultDialect:
    return DefaultDialect(paramstyle="qmark")
