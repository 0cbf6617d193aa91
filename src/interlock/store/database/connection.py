"""Async connections to a database: SQLAlchemy's own connections, each call in a greenlet.

`sqlalchemy.ext.asyncio` provides the same, but imports the whole ORM. `create_engine` accepts
asyncio drivers, too, and `sqlalchemy.util.greenlet_spawn` runs a call that awaits such a driver.
SQLAlchemy exports that function for its drivers without documenting it; `test_connection` fails if
it is moved.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, TypeVarTuple

# SQLAlchemy imports greenlet on first use. This import fails early if greenlet is missing.
import greenlet  # type: ignore[import-untyped]  # noqa: F401  # ships no types
from sqlalchemy import Connection, CursorResult, Dialect, Engine, Executable, text
from sqlalchemy.util import greenlet_spawn

from interlock.text.timestamps import now_micros

_NOW = text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Rows = CursorResult[*tuple[Any, ...]]


class AsyncConnection:
    """A connection in a transaction, which the first statement begins.

    Args:
        core: The SQLAlchemy connection, whose calls run in greenlets.
    """

    def __init__(self, core: Connection) -> None:
        self._core = core

    @property
    def dialect(self) -> Dialect:
        return self._core.dialect

    async def execute(self, statement: Executable, parameters: Any = None) -> Rows:
        """Run a statement; return its result, with all rows already fetched."""
        return await greenlet_spawn(self._core.execute, statement, parameters)

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """Run a statement; return the first column of the first row, or None without rows."""
        return await greenlet_spawn(self._core.scalar, statement, parameters)

    async def run_sync(self, work: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        """Run `work` with the SQLAlchemy connection, without blocking the event loop."""
        return await greenlet_spawn(work, self._core, *args)

    async def now(self) -> int:
        """Return the database's time in microseconds since 1970.

        All gateways of a PostgreSQL server use its clock; a SQLite file has this machine's.
        """
        if self.dialect.name != "postgresql":
            return now_micros()
        return int(await self.scalar(_NOW))

    async def commit(self) -> None:
        await greenlet_spawn(self._core.commit)


@asynccontextmanager
async def connect(engine: Engine) -> AsyncGenerator[AsyncConnection]:
    """Take a connection from the pool; roll back and return it at the end of the block."""
    core = await greenlet_spawn(engine.connect)
    try:
        yield AsyncConnection(core)
    finally:
        # If this await is cancelled, the pool discards the connection.
        await greenlet_spawn(core.close)


async def dispose(engine: Engine) -> None:
    """Close the pool's connections, and end their threads."""
    await greenlet_spawn(engine.dispose)
