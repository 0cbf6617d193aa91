"""The audit tables in PostgreSQL, written over one asyncpg connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from interlock.errors import AuditUnavailable, StoreError
from interlock.store import postgres
from interlock.store.error_mapping import store_error
from interlock.store.location import public_name

TIMEOUT = 0.8  # seconds for a connection, and for each answer

_INSERT = (
    'INSERT INTO audit (writer, seq, at, tenant, kind, call, "user", key, server, tool, status,'
    " reason, body, hash) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
)
_INSERT_HEAD = (
    "INSERT INTO audit_heads (writer, started, host, seq, hash) VALUES ($1, $2, $3, $4, $5)"
)
_LAST = "SELECT seq, hash FROM audit WHERE writer = $1 ORDER BY seq DESC LIMIT 1"
_END = "UPDATE audit_heads SET ended = $1, seq = $2, hash = $3 WHERE writer = $4"

T = TypeVar("T")


class PostgresAudit:
    """The audit tables in one PostgreSQL database.

    A connection that failed is replaced by the next method call.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None

    async def insert_head(self, writer: str, started: int, host: str, hash: bytes) -> None:
        """Insert the head of a new chain."""
        await self._do(lambda each: each.execute(_INSERT_HEAD, writer, started, host, 0, hash))

    async def insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert rows into `audit`, all or none."""
        # asyncpg runs it in one transaction and one round trip.
        await self._do(lambda each: each.executemany(_INSERT, rows))

    async def last(self, writer: str) -> tuple[int, bytes] | None:
        """Return number and hash of a writer's last record."""
        found = await self._do(lambda each: each.fetchrow(_LAST, writer))
        return (found["seq"], found["hash"]) if found else None

    async def end(self, writer: str, ended: int, seq: int, hash: bytes) -> None:
        """Record the end of a chain."""
        await self._do(lambda each: each.execute(_END, ended, seq, hash, writer))

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*_driver_errors()):
                await connection.close(timeout=TIMEOUT)

    async def _do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            return await work(self._connection)
        except StoreError as error:
            raise AuditUnavailable(str(error)) from error
        except _driver_errors() as error:
            self._drop()
            raise AuditUnavailable(str(store_error(error, public_name(self._url)))) from error
        except BaseException:
            self._drop()  # it may be in the middle of a statement
            raise

    async def _connect(self) -> Any:
        connection = await postgres.connect(self._url, timeout=TIMEOUT, command_timeout=TIMEOUT)
        try:
            # With "off", a commit is acknowledged before it is on the disk.
            if await connection.fetchval("SHOW synchronous_commit") == "off":
                await connection.execute("SET synchronous_commit = on")
        except BaseException:
            connection.terminate()
            raise
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def _driver_errors() -> tuple[type[Exception], ...]:
    asyncpg = postgres.import_driver()
    return (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
