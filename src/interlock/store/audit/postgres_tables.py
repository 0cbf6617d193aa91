"""The audit tables in PostgreSQL, over one asyncpg connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from interlock import aio
from interlock.errors import AuditUnavailable, StoreError
from interlock.store.audit.sqlite_tables import SqliteAudit
from interlock.store.database import postgres
from interlock.store.database.claims import Claim, ClaimFailed, Row, Statement, numbered
from interlock.store.database.error_mapping import store_error
from interlock.store.database.location import public_name

TIMEOUT = 0.8  # seconds; short, because calls wait until their records are written

T = TypeVar("T")


class PostgresAudit:
    """The audit tables in one PostgreSQL database.

    If a connection fails, the next method call opens a new connection. Until then, its writer does
    not hold its lock, though it is alive.

    Args:
        url: The URL of the server and database.
        timeout: Seconds to wait for a connection, and for each answer.
    """

    LOOKS = 4  # times a minute that the locks of other writers are examined
    LOOKS_UNTIL_DEAD = 3  # a live writer reconnects in the meantime

    def __init__(self, url: str, *, timeout: float = TIMEOUT) -> None:
        self._url = url
        self._timeout = timeout
        self._connection: Any = None
        self._held: int | None = None  # the key of the advisory lock that each new connection takes
        self._holds = False  # whether the connection has the lock
        self._using = asyncio.Lock()  # because a connection can run only one statement at a time

    async def hold(self, writer: str) -> None:
        self._held = lock_of(writer)
        self._drop()

    async def renew(self) -> None:
        """Take the lock of this writer again if the connection was replaced.

        Raises:
            AuditUnavailable: The database does not answer.
        """
        await self._do(self._take_own)

    async def is_alive(self, writer: str) -> bool:
        if not await self.take_over(writer):
            return True
        await self.forget(writer)
        return False

    async def take_over(self, writer: str) -> bool:
        """Take a dead writer's lock, until `forget`; return False if another process has it."""
        lock = lock_of(writer)
        if lock == self._held:
            return False
        ((is_free,),) = await self.fetch("SELECT pg_try_advisory_lock(?)", lock)
        return bool(is_free)

    async def forget(self, writer: str) -> None:
        await self.fetch("SELECT pg_advisory_unlock(?)", lock_of(writer))

    async def write(self, *statements: Statement | Claim) -> int:
        """Run statements in one transaction; return how many rows the last statement changed.

        Raises:
            ClaimFailed: A claim failed (see `Claim`), so the transaction was rolled back.
            AuditUnavailable: Nothing was changed, or it is unknown whether the commit succeeded.
        """
        return await self._do(lambda each: _write(each, statements))

    async def fetch(self, sql: str, *parameters: object) -> list[Row]:
        rows = await self._do(lambda each: each.fetch(numbered(sql), *parameters))
        return [tuple(row) for row in rows]

    async def scan(
        self, sql: str, *parameters: object, work: Callable[[list[Row]], None]
    ) -> Row | None:
        rows = await self.fetch(sql, *parameters)
        if rows:
            await aio.in_thread(lambda: work(rows))
        return rows[-1] if rows else None

    async def snapshot(self) -> None:
        await self.fetch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*postgres.server_errors()):
                await connection.close(timeout=TIMEOUT)

    async def _do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        async with self._using:
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await self._connect()
                return await work(self._connection)
            except ClaimFailed:
                raise
            except StoreError as error:
                raise AuditUnavailable(str(error)) from error
            except postgres.server_errors() as error:
                self._drop()
                raise AuditUnavailable(str(store_error(error, public_name(self._url)))) from error
            except BaseException:
                self._drop()  # the connection may be in the middle of a statement
                raise

    async def _connect(self) -> Any:
        connection = await postgres.connect(
            self._url, timeout=self._timeout, command_timeout=self._timeout
        )
        try:
            # With "off", the server confirms a commit before the commit is on disk.
            if await connection.fetchval("SHOW synchronous_commit") == "off":
                await connection.execute("SET synchronous_commit = on")
            self._holds = False
            await self._take_own(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _take_own(self, connection: Any) -> None:
        if self._held is not None and not self._holds:
            taken = "SELECT pg_try_advisory_lock($1)"
            self._holds = await connection.fetchval(taken, self._held)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


async def _write(connection: Any, statements: Sequence[Statement | Claim]) -> int:
    first = statements[0]
    if len(statements) == 1 and not isinstance(first, Claim):  # no BEGIN and COMMIT are needed
        return await _execute(connection, first)
    changed, has_failed = 0, False
    async with connection.transaction():
        for each in statements:
            if not isinstance(each, Claim):
                changed = await _execute(connection, each)
                continue
            each.has_failed = await _execute(connection, (each.sql, [each.row])) != 1
            has_failed = has_failed or each.has_failed
            for statement in each.then:
                await _execute(connection, statement)
        if has_failed:
            raise ClaimFailed
    return changed


async def _execute(connection: Any, statement: Statement) -> int:
    sql, rows = statement
    if len(rows) != 1:
        await connection.executemany(numbered(sql), rows)  # atomic: all rows or none
        return len(rows)
    answer: str = await connection.execute(numbered(sql), *rows[0])
    return int(answer.rpartition(" ")[2])  # the answer is like "UPDATE 1"


def lock_of(writer: str) -> int:
    """Return the key of the advisory lock that a writer holds while it is alive."""
    return int(writer, 36)  # a writer's id has at most twelve digits and lower-case letters


AuditTables: TypeAlias = SqliteAudit | PostgresAudit
