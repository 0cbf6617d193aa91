"""A database with this program's tables, which is used in short transactions.

1. Work runs to its end even if its caller is cancelled, so it is done completely or not at all.
2. A connection is used for one piece of work, and never while the caller awaits anything else.
3. In SQLite, one task of a process writes at a time; SQLite's lock serializes processes.
4. Every database error is raised as a `StoreError`.
5. After a failed sync, this process only reads that SQLite file; see `sqlite_file`.
6. If a PostgreSQL server does not answer, an error is raised after 6 seconds, or after 11 seconds
   if all connections are in use. Once the server answers again, the next piece of work succeeds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote

import aiosqlite  # noqa: F401  # SQLAlchemy imports it by name; fail here if it is missing
from sqlalchemy import URL, Engine, create_engine, event, text
from sqlalchemy.engine.interfaces import AdaptedConnection, DBAPIConnection
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from interlock.errors import StoreError
from interlock.histogram import DATABASE_BOUNDS, Histogram
from interlock.store.database import postgres, sqlite_file
from interlock.store.database.connection import AsyncConnection, connect, dispose
from interlock.store.database.creation import is_usable, prepare, revision_of
from interlock.store.database.disk_reserve import DiskReserve
from interlock.store.database.error_mapping import (
    damage_error,
    is_failed_sync,
    store_error,
    unsynced_error,
)
from interlock.store.database.location import (
    find,
    prepare_file,
    public_name,
    refuse_unreadable,
    without_links,
)

# Seconds to wait for another process's lock, for a new connection to PostgreSQL, and for a free
# connection in the pool.
LOCK_TIMEOUT = 5.0
COMMAND_TIMEOUT = 6.0  # seconds to wait for PostgreSQL's answer to a command
# The errors of SQLAlchemy and its drivers. Any other exception is a bug, so it is not converted.
DATABASE_ERRORS = (SQLAlchemyError, sqlite3.Error, OSError)
_PREPARATION_LOCK = 0x696E7465726C6F63  # the key of our advisory lock in PostgreSQL

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]


class Database:
    """An open database.

    Args:
        engine: SQLAlchemy's engine, which has the connections.
        location: The database's path, or its URL without user and password, for messages.
        file: The path of the SQLite file without symbolic links; None for PostgreSQL.

    Attributes:
        location: The argument `location`.
        is_shared: Whether several gateways may use it, as they may a PostgreSQL database.
        seconds: How long reads and transactions took.
        errors: The number of those that failed.
        reserve: Keeps space for the audit trail on the disk of an SQLite file.
    """

    def __init__(self, engine: Engine, location: str, file: Path | None = None) -> None:
        self.location = location
        self.reserve = DiskReserve(None if file is None else file.parent)
        self.is_shared = file is None
        self.seconds, self.errors = Histogram(DATABASE_BOUNDS), 0
        self._engine = engine
        self._file = file
        self._writing = asyncio.Lock()
        self._commits = 0  # commits since the log was last copied into the file
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def read(self, work: Work[T]) -> T:
        """Run `work`, which must not change anything."""
        return await self._run_to_completion(self._run(work))

    async def write(self, work: Work[T]) -> T:
        """Run `work` in one transaction; its changes are durable when this returns."""
        return await self._run_to_completion(self._write(work))

    async def close(self) -> None:
        """Finish running work, then close all connections and their threads.

        If this call is cancelled, it still closes them before it raises `CancelledError`.
        """
        self._closed = True
        closing = asyncio.create_task(self._close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait([closing])
            raise

    async def _close(self) -> None:
        if self._file:
            self._start(self._empty_log(self._file))
        if self._running:
            await asyncio.wait(self._running)
        with sqlite_file.log_preserved(self._file) if self._file else nullcontext():
            await dispose(self._engine)

    # Working

    async def _run_to_completion(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise StoreError(f"{self.location} has been closed")
        task = self._start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # A second cancellation ends this wait, but not the work: `close` waits for it.
            await asyncio.wait([task])
            raise

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _run(self, work: Work[T]) -> T:
        began = monotonic()
        try:
            async with connect(self._engine) as connection:
                return await work(connection)
        except PoolTimeout as error:
            self.errors += 1
            raise store_error(TimeoutError(), self.location) from error
        except DATABASE_ERRORS as error:
            self.errors += 1
            if self._file and is_failed_sync(error):
                sqlite_file.mark_unsynced(self._file)
            raise store_error(error, self.location) from error
        finally:
            self.seconds.note(monotonic() - began)

    async def _write(self, work: Work[T]) -> T:
        async def committed(connection: AsyncConnection) -> T:
            if self._file:
                # SQLite waits for another process's lock only at the start of a transaction.
                await connection.execute(text("BEGIN IMMEDIATE"))
            result = await work(connection)
            await connection.commit()
            return result

        if not self._file:
            return await self._run(committed)
        async with self._writing:
            if sqlite_file.is_unsynced(self._file):
                raise unsynced_error(self.location)
            result = await self._run(committed)
            self._commits += 1
            await self._checkpoint(self._file, over=sqlite_file.LONGEST_LOG)
            return result

    async def _empty_log(self, file: Path) -> None:
        async with self._writing:  # the lock is fair, so this runs after all waiting writers
            await self._checkpoint(file, over=0)

    async def _checkpoint(self, file: Path, *, over: int) -> None:
        if sqlite_file.needs_checkpoint(file, self._commits, over=over):
            self._commits = 0
            with suppress(StoreError):  # committed changes are safe: they are still in the log
                await self._run(lambda each: each.execute(text("PRAGMA wal_checkpoint(PASSIVE)")))


async def open_database(location: str | Path | None) -> Database:
    """Open the database at a path or URL, or the user's default one; create or expand its tables.

    Raises:
        StoreError: The database cannot be opened; the subclass and the text state the reason.
        MissingExtra: asyncpg, which PostgreSQL needs, is not installed.
    """
    found = find(location)
    if isinstance(found, Path):
        return await _open_sqlite(found)
    return await _open_postgres(found)


async def connect_database(
    location: str | Path | None, *, is_new: bool = False, is_patient: bool = False
) -> Database:
    """Open a database as it is; see `open_database`.

    Args:
        location: The path or URL.
        is_new: Whether to create the file, which does not exist yet.
        is_patient: Whether a statement may take as long as it needs.
    """
    found = find(location)
    if isinstance(found, str):
        return Database(
            _postgres_engine(found, None if is_patient else COMMAND_TIMEOUT), public_name(found)
        )
    file = without_links(found)
    if not is_new:
        refuse_unreadable(found)  # the driver's thread may outlive the event loop if it cannot
    writable = prepare_file(found) if is_new else os.access(found, os.W_OK)
    return Database(_sqlite_engine(file, writable), str(found), file)


async def _prepare(database: Database) -> None:
    is_older = await _is_older(database)
    try:
        await database.write(lambda each: prepare_alone(each, database.location))
    except StoreError as error:
        if is_older:
            error.add_note(
                "its tables are older than this interlock: `interlock db upgrade` adds what they"
                " lack, without a time limit, and perhaps as a user with more rights"
            )
        raise


async def _is_older(database: Database) -> bool:
    return await database.read(lambda each: each.run_sync(revision_of)) is not None


async def prepare_alone(
    connection: AsyncConnection, location: str, *, on_request: bool = False
) -> None:
    """Create or expand the tables, while no other process does so; see `creation.prepare`."""
    if connection.dialect.name == "postgresql":  # a write to an SQLite file is alone anyway
        lock = text("SELECT pg_advisory_xact_lock(:key)")
        await connection.execute(lock, {"key": _PREPARATION_LOCK})
    await connection.run_sync(partial(prepare, on_request=on_request), location)


# SQLite


async def _open_sqlite(path: Path) -> Database:
    file = without_links(path)
    writable = prepare_file(path) and not sqlite_file.is_unsynced(file)
    database = Database(_sqlite_engine(file, writable), str(path), file)
    try:
        await database.read(lambda connection: check_pages(connection, database.location))
        if not await database.read(lambda connection: connection.run_sync(is_usable, str(path))):
            if not writable and not sqlite_file.is_unsynced(file):
                what = "of an older interlock" if await _is_older(database) else "empty"
                raise StoreError(f"{path} is read-only and {what}: make it writable")
            await _prepare(database)
        if writable:
            await database.read(_enable_log)
    except BaseException:
        await database.close()
        raise
    return database


async def check_pages(connection: AsyncConnection, location: str) -> None:
    """Check the pages of a SQLite file, unless there are so many that it would take long.

    Raises:
        StoreCorrupt: The file is damaged.
    """
    if connection.dialect.name != "sqlite":
        return
    pages = await connection.scalar(text("PRAGMA page_count"))
    if pages <= sqlite_file.CHECK_PAGES:
        verdict = await connection.scalar(text("PRAGMA quick_check(1)"))
        if verdict != "ok":
            raise damage_error(verdict, location)


async def _enable_log(connection: AsyncConnection) -> None:
    # When several processes start together, SQLite fails here at once instead of waiting: retry.
    deadline = monotonic() + LOCK_TIMEOUT
    while await connection.scalar(text("PRAGMA journal_mode")) != "wal":
        try:
            await connection.execute(text("PRAGMA journal_mode = WAL"))
        except OperationalError as error:
            if is_failed_sync(error) or monotonic() > deadline:
                raise
            await asyncio.sleep(0.01)


def _sqlite_engine(file: Path, writable: bool) -> Engine:
    # The driver's debug log would contain every query parameter, such as the text of messages.
    logging.getLogger("aiosqlite").setLevel(logging.INFO)
    query = {"uri": "true", "mode": "rw" if writable else "ro"}
    if not writable and not sqlite_file.log_of(file).exists():
        # Without a log, no process is writing, and a read-only folder cannot get a log.
        query["immutable"] = "1"
    engine = create_engine(
        URL.create("sqlite+aiosqlite", database="file:" + quote(str(file)), query=query),
        # `isolation_level` None: transactions begin where this module says BEGIN, not implicitly.
        connect_args={"timeout": LOCK_TIMEOUT, "isolation_level": None},
        hide_parameters=True,
        max_overflow=0,
    )

    @event.listens_for(engine, "connect")
    def set_up(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        for setting in sqlite_file.SETTINGS:
            cursor.execute(setting)
        cursor.close()

    return engine


# PostgreSQL


async def _open_postgres(url: str) -> Database:
    name = public_name(url)

    database = Database(_postgres_engine(url), name)
    try:
        if await database.read(_is_pooled):
            await postgres.refuse_transaction_pooler(url, timeout=LOCK_TIMEOUT)
        if not await database.read(lambda each: each.run_sync(is_usable, name)):
            await _prepare(database)
    except BaseException:
        await database.close()
        raise
    return database


async def _is_pooled(connection: AsyncConnection) -> bool:
    """Return whether a pooler answers: its process id differs from the server's."""
    stated = await connection.run_sync(lambda core: core.connection.driver_connection)
    process = await connection.scalar(text("SELECT pg_backend_pid()"))
    return bool(stated is not None and stated.get_server_pid() != process)


def _postgres_engine(url: str, command_timeout: float | None = COMMAND_TIMEOUT) -> Engine:
    postgres.import_driver()

    async def asyncpg_connection(*_: object, **__: object) -> Any:
        return await postgres.connect(url, timeout=LOCK_TIMEOUT, command_timeout=command_timeout)

    engine = create_engine(
        "postgresql+asyncpg://",
        connect_args={"async_creator_fn": asyncpg_connection},
        hide_parameters=True,
        pool_pre_ping=True,  # replaces a connection that broke while it was unused
        pool_timeout=LOCK_TIMEOUT,
    )

    @event.listens_for(engine, "close")
    def terminate(connection: AdaptedConnection, _record: object) -> None:
        # An orderly close would wait for a hanging server, separately for each connection.
        connection.driver_connection.terminate()

    return engine
