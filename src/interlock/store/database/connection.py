"""Connections to a database that coroutines can use: SQLAlchemy's own, each call in a greenlet.

`sqlalchemy.ext.asyncio` has the same, and imports the whole ORM with it. `create_engine` takes the
drivers for asyncio as well, and `sqlalchemy.util.greenlet_spawn` runs a call that waits for one.
SQLAlchemy exports that function for such drivers but does not document it; `test_connection`
fails if it moves.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, TypeVarTuple

# SQLAlchemy imports greenlet on first use; this import makes a missing one fail early.
import greenlet  # type: ignore[import-untyped]  # noqa: F401  # ships no types
from sqlalchemy import Connection, CursorResult, Dialect, Engine, Executable
from sqlalchemy.util import greenlet_spawn

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Rows = CursorResult[*tuple[Any, ...]]


class AsyncConnection:
    """A connection, in a transaction that its first statement begins.

    Args:
        core: The SQLAlchemy connection, whose calls wait in greenlets.
    """

    def __init__(self, core: Connection) -> None:
        self._core = core

    @property
    def dialect(self) -> Dialect:
        return self._core.dialect

    async def execute(self, statement: Executable, parameters: Any = None) -> Rows:
        """Run a statement; return its result with all rows fetched."""
        return await greenlet_spawn(self._core.execute, statement, parameters)

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """Run a statement; return the first column of its first row, or None."""
        return await greenlet_spawn(self._core.scalar, statement, parameters)

    async def run_sync(self, work: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        """Run `work` with SQLAlchemy's connection, without blocking the event loop."""
        return await greenlet_spawn(work, self._core, *args)

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
    """Close the connections of the pool, and end their threads."""
    await greenlet_spawn(engine.dispose)
