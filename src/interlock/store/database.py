"""A database of ours: opened at the right version, used in short transactions.

1. Work runs to its end even when its caller is cancelled: all of it happened or nothing, and
   the driver's connection is never left half-way.
2. A connection is held for one piece of work, never while somebody waits for something else.
3. SQLite has one writer a process; writers of other processes take turns by its lock.
4. Whatever the database raises leaves here as a `StoreError`.
5. After a sync that failed nobody knows what is on the disk, and the next one may well succeed
   without having written what the first one lost. So this process writes no more to that
   SQLite file, syncs it no more and leaves its log in place: the next start reads from it what
   is whole. Reading goes on.
6. A PostgreSQL server that does not answer is an error after 6 seconds, or after 11 when all
   connections wait for it already. When it is back, whoever comes next uses it again.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote

import aiosqlite  # noqa: F401  # SQLAlchemy's driver by name: if it is missing, say so now
from sqlalchemy import URL, event, text
from sqlalchemy.engine.interfaces import AdaptedConnection, DBAPIConnection
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from interlock.errors import MissingExtra, StoreError
from interlock.store import location
from interlock.store.error_mapping import (
    DATABASE_ERRORS,
    damage,
    is_failed_sync,
    store_error,
    unsynced,
)
from interlock.store.upgrade import is_current, upgrade

# Seconds to wait for another process; for PostgreSQL also to connect, or for a connection that
# is free.
LOCK_TIMEOUT = 5.0
COMMAND_TIMEOUT = 6.0  # seconds for an answer of PostgreSQL, which may have to wait for a lock
LONGEST_LOG = 4 * 1024 * 1024  # bytes that SQLite's log may have before it goes into the file
_CHECK_PAGES = 4096  # a file up to 16 MiB is checked whole at start, in at most 10 ms
_UPGRADE_LOCK = 0x696E7465726C6F63  # names our advisory lock in PostgreSQL

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]

_unsynced: set[Path] = set()  # files that this process writes no more to


class Database:
    """An open database.

    Args:
        engine: Its connections.
        place: Its path, or the public part of its URL, for messages.
        file: Of SQLite, without symbolic links.

    Attributes:
        place: As given.
    """

    def __init__(self, engine: AsyncEngine, place: str, file: Path | None = None) -> None:
        self.place = place
        self._engine = engine
        self._file = file
        self._writing = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def read(self, work: Work[T]) -> T:
        """Run work that changes nothing."""
        return await self._to_the_end(self._run(work))

    async def write(self, work: Work[T]) -> T:
        """Run work in one transaction; what it did is durable when this returns."""
        return await self._to_the_end(self._write(work))

    async def close(self) -> None:
        """Finish what is running and end all connections and their threads."""
        self._closed = True
        if self._file:
            self._start(self._end_log(self._file))
        if self._running:
            await asyncio.wait(self._running)
        with _log_left(self._file) if self._file in _unsynced else nullcontext():
            await self._engine.dispose()

    # Working

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise StoreError(f"{self.place} has been closed")
        task = self._start(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # A second cancellation ends this wait; `close` waits for the rest.
            await asyncio.wait([task])
            raise

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _run(self, work: Work[T]) -> T:
        try:
            async with self._engine.connect() as connection:
                return await work(connection)
        except DATABASE_ERRORS as error:
            if self._file and is_failed_sync(error):
                _unsynced.add(self._file)
            raise store_error(error, self.place) from error

    async def _write(self, work: Work[T]) -> T:
        async def committed(connection: AsyncConnection) -> T:
            if self._file:
                # Taking the lock first is what makes waiting for it possible.
                await connection.execute(text("BEGIN IMMEDIATE"))
            result = await work(connection)
            await connection.commit()
            return result

        if not self._file:
            return await self._run(committed)
        async with self._writing:
            if self._file in _unsynced:
                raise unsynced(self.place)
            result = await self._run(committed)
            await self._empty_log(self._file, over=LONGEST_LOG)
            return result

    async def _end_log(self, file: Path) -> None:
        async with self._writing:  # after all who wait for it
            await self._empty_log(file, over=0)

    async def _empty_log(self, file: Path, *, over: int) -> None:
        """Put SQLite's log into the file, if it has over so many bytes."""
        # SQLite would do this by itself, but say nothing when the disk fails at it.
        with suppress(StoreError, OSError):  # what has been acknowledged is in the log
            if file not in _unsynced and _log_of(file).stat().st_size > over:
                await self._run(lambda each: each.execute(text("PRAGMA wal_checkpoint(PASSIVE)")))


async def open_database(place: str | Path | None) -> Database:
    """Open the database at a path or URL, or the user's own, and bring it to our version.

    Raises:
        StoreError: It cannot be opened; the subclass and the text say why.
        MissingExtra: PostgreSQL without its driver.
    """
    found = location.find(place)
    if isinstance(found, Path):
        return await _open_sqlite(found)
    return await _open_postgres(found)


# SQLite


async def _open_sqlite(path: Path) -> Database:
    file = location.without_links(path)
    writable = location.prepare_file(path) and file not in _unsynced
    database = Database(_sqlite_engine(file, writable), str(path), file)
    try:
        await database.read(lambda connection: _check(connection, database.place))
        if not await database.read(lambda connection: connection.run_sync(is_current, str(path))):
            if not writable and file not in _unsynced:
                raise StoreError(f"{path} is read-only and of an older version: make it writable")
            await database.write(lambda connection: connection.run_sync(upgrade, str(path)))
        if writable:
            await database.read(_keep_a_log)
    except BaseException:
        await database.close()
        raise
    return database


async def _check(connection: AsyncConnection, place: str) -> None:
    pages = await connection.scalar(text("PRAGMA page_count"))
    if pages <= _CHECK_PAGES:
        verdict = await connection.scalar(text("PRAGMA quick_check(1)"))
        if verdict != "ok":
            raise damage(verdict, place)


async def _keep_a_log(connection: AsyncConnection) -> None:
    # SQLite does not wait by itself when starters stand in each other's way here.
    deadline = monotonic() + LOCK_TIMEOUT
    while await connection.scalar(text("PRAGMA journal_mode")) != "wal":
        try:
            await connection.execute(text("PRAGMA journal_mode = WAL"))
        except OperationalError as error:
            if is_failed_sync(error) or monotonic() > deadline:
                raise
            await asyncio.sleep(0.01)


def _sqlite_engine(file: Path, writable: bool) -> AsyncEngine:
    # Its debug lines repeat every parameter, and so everything that is said.
    logging.getLogger("aiosqlite").setLevel(logging.INFO)
    query = {"uri": "true", "mode": "rw" if writable else "ro"}
    if not writable and not _log_of(file).exists():
        # Without a log nobody is writing, and a log cannot be made in a read-only folder.
        query["immutable"] = "1"
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database="file:" + quote(str(file)), query=query),
        # Transactions begin where this file says so, not where the sqlite3 module guesses.
        connect_args={"timeout": LOCK_TIMEOUT, "isolation_level": None},
        hide_parameters=True,
        max_overflow=0,
    )

    @event.listens_for(engine.sync_engine, "connect")
    def set_up(connection: DBAPIConnection, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA synchronous = FULL")  # a commit survives a power cut
        cursor.execute("PRAGMA wal_autocheckpoint = 0")  # `Database` does it
        cursor.execute("PRAGMA journal_size_limit = 0")  # so that the log's size is what is in it
        cursor.close()

    return engine


def _log_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


@contextmanager
def _log_left(file: Path) -> Iterator[None]:
    """Let connections end without what the last one does: put the log into the file, and sync.

    Here the last one is one that cannot write.
    """
    reader = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)
    try:
        with suppress(sqlite3.Error):
            reader.execute("SELECT 1 FROM sqlite_master").close()  # opens file and log
        yield
    finally:
        reader.close()


# PostgreSQL


async def _open_postgres(url: str) -> Database:
    database = Database(_postgres_engine(url), location.public_name(url))
    place = database.place

    async def upgrade_alone(connection: AsyncConnection) -> None:
        await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        await connection.run_sync(upgrade, place)

    try:
        if not await database.read(lambda connection: connection.run_sync(is_current, place)):
            await database.write(upgrade_alone)
    except BaseException:
        await database.close()
        raise
    return database


def _postgres_engine(url: str) -> AsyncEngine:
    try:
        import asyncpg  # type: ignore[import-untyped]  # it ships no types
    except ModuleNotFoundError as error:
        raise MissingExtra("a PostgreSQL database", "postgres") from error

    name = location.public_name(url)

    async def connect(*_: object, **__: object) -> Any:
        try:
            return await asyncpg.connect(
                url,
                timeout=LOCK_TIMEOUT,
                command_timeout=COMMAND_TIMEOUT,
                server_settings={
                    "application_name": "interlock",
                    "lock_timeout": str(int(LOCK_TIMEOUT * 1000)),
                },
            )
        except ValueError:
            # Its text may repeat the URL, with the password.
            raise StoreError(f"{name}: the URL is not a valid postgresql:// URL") from None
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            silent = isinstance(error, TimeoutError) and not str(error)
            words = f"no answer within {LOCK_TIMEOUT:g} s" if silent else str(error)
            reason = words.partition("\n")[0] or type(error).__name__
            raise StoreError(f"cannot connect to {name}: {reason}") from error

    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=connect,
        hide_parameters=True,
        pool_pre_ping=True,  # a connection that broke while nobody used it is replaced
        pool_timeout=LOCK_TIMEOUT,
    )

    @event.listens_for(engine.sync_engine, "close")
    def hang_up(connection: AdaptedConnection, _record: object) -> None:
        # A server that hangs would not say goodbye, and each connection would wait for that.
        connection.driver_connection.terminate()

    return engine
