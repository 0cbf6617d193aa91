"""The audit tables in a SQLite file, used in a separate thread over a separate connection."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

from interlock import aio
from interlock.errors import AuditFailed, AuditUnavailable
from interlock.store.audit import writer_lock
from interlock.store.audit.writer_lock import WriterLock
from interlock.store.database import sqlite_file
from interlock.store.database.claims import Claim, ClaimFailed, Row, Statement
from interlock.store.database.error_mapping import is_failed_sync, store_error, unsynced_error
from interlock.store.database.location import without_links

LOCK_TIMEOUT = 0.8  # seconds to wait for another connection's lock
CLOSE_WAIT = 5.0  # seconds that `close` waits for the last transaction

T = TypeVar("T")


class SqliteAudit:
    """The audit tables in one SQLite file. Methods run one at a time, in a separate thread.

    Attributes:
        reads_any_text: Whether invalid UTF-8 is read as surrogates. If not, a query that reads
            such text fails, but other queries are faster.
    """

    LOOKS = 1  # times a minute that the locks of other writers are examined
    LOOKS_UNTIL_DEAD = 1

    def __init__(self, path: Path) -> None:
        self._location = str(path)
        self._file = without_links(path)
        self._connection: sqlite3.Connection | None = None
        self.reads_any_text = False
        self._commits = 0  # commits since the log was last copied into the file
        self._lock: WriterLock | None = None
        self._taken: dict[str, WriterLock] = {}  # of dead writers whose chains are being closed
        self._jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = (
            SimpleQueue()
        )
        # A daemon thread, so that a disk that hangs does not block the exit of the process.
        self._thread = Thread(target=self._run_jobs, name="interlock-audit", daemon=True)
        self._thread.start()

    async def hold(self, writer: str) -> None:
        """Hold a lock until `close`, to show other processes that this writer is alive."""
        try:
            self._lock = WriterLock(self._file, writer)
        except OSError as error:
            raise AuditUnavailable(f"{self._file} cannot be locked: {error.strerror}") from None

    async def renew(self) -> None:
        """Do nothing: the operating system keeps the lock as long as this process runs."""

    async def is_alive(self, writer: str) -> bool:
        return writer_lock.is_alive(self._file, writer)

    async def take_over(self, writer: str) -> bool:
        """Take a dead writer's lock, until `forget`; return False if another process has it."""
        lock = WriterLock.of_dead(self._file, writer)
        if lock is not None:
            self._taken[writer] = lock
        return lock is not None

    async def forget(self, writer: str) -> None:
        """Release the lock of a dead writer."""
        self._taken.pop(writer).release()

    def write(self, *statements: Statement | Claim) -> asyncio.Future[int]:
        """Run statements in one transaction; return how many rows the last statement changed.

        Raises:
            ClaimFailed: A claim failed (see `Claim`), so the transaction was rolled back.
            AuditUnavailable: Nothing was changed, or it is unknown whether the commit succeeded.
            AuditFailed: A sync failed, so this process can no longer write.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._jobs.put((partial(self._write, statements), done))
        return done

    async def fetch(self, sql: str, *parameters: object) -> list[Row]:
        """Run a query and return its rows.

        Raises:
            AuditUnavailable: The database cannot be read.
        """
        return await self._submit(lambda: self._fetch(sql, parameters))

    async def scan(
        self, sql: str, *parameters: object, work: Callable[[list[Row]], None]
    ) -> Row | None:
        """Pass a query's rows to `work` in batches, in the thread; return the last row."""
        return await self._submit(lambda: self._scan(sql, parameters, work))

    async def snapshot(self) -> None:
        """Begin a snapshot: all further queries see the database as it is now."""
        await self.fetch("BEGIN")

    async def close(self) -> None:
        """Close the connection and end the thread; give up after `CLOSE_WAIT` if the disk hangs."""
        closing = self._submit(self._close)
        self._jobs.put(None)
        await asyncio.wait([closing], timeout=CLOSE_WAIT)
        if closing.done():
            self._thread.join()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((work, done))
        return done

    # In the thread

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            result, error = None, None
            try:
                result = work()
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):  # the event loop was closed
                done.get_loop().call_soon_threadsafe(aio.settle, done, result, error)
            self._checkpoint(over=sqlite_file.LONGEST_LOG)

    def _write(self, statements: Sequence[Statement | Claim]) -> int:
        if sqlite_file.is_unsynced(self._file):
            raise AuditFailed(str(unsynced_error(self._location)))
        changed, has_failed = 0, False
        try:
            connection = self._connected()
            _begin(connection)
            for each in statements:
                if not isinstance(each, Claim):
                    changed = connection.executemany(*each).rowcount
                    continue
                each.has_failed = connection.execute(each.sql, each.row).rowcount != 1
                has_failed = has_failed or each.has_failed
                for statement in each.then:
                    connection.executemany(*statement)
            if has_failed:
                connection.execute("ROLLBACK")
                raise ClaimFailed
            connection.execute("COMMIT")
            self._commits += 1
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return changed

    def _fetch(self, sql: str, parameters: Sequence[object]) -> list[Row]:
        try:
            return self._reading().execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _scan(
        self, sql: str, parameters: Sequence[object], work: Callable[[list[Row]], None]
    ) -> Row | None:
        last = None
        try:
            cursor = self._reading().execute(sql, parameters)
            while rows := cursor.fetchmany(1_000):
                work(rows)
                last = rows[-1]
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return last

    def _failed(self, error: sqlite3.Error) -> AuditUnavailable:
        if is_failed_sync(error):
            sqlite_file.mark_unsynced(self._file)
            return AuditFailed(str(unsynced_error(self._location)))
        if self._connection is not None and self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._connection.rollback()
        return AuditUnavailable(str(store_error(error, self._location)))

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(
                sqlite_file.uri(self._file, mode="rw"),
                uri=True,
                isolation_level=None,
                # `_begin` waits for the lock instead: SQLite pauses longer after each attempt, so
                # other writers would get the lock first.
                timeout=0.01,
            )
            for setting in sqlite_file.SETTINGS:
                connection.execute(setting)
            self._connection = connection
        return self._connection

    def _reading(self) -> sqlite3.Connection:
        connection = self._connected()
        connection.text_factory = _any_text if self.reads_any_text else str
        return connection

    def _checkpoint(self, *, over: int) -> None:
        connection = self._connection
        if connection is None:
            return
        if not sqlite_file.needs_checkpoint(self._file, self._commits, over=over):
            return
        self._commits = 0
        try:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
        except sqlite3.Error as error:  # no data is lost: committed records are still in the log
            if is_failed_sync(error):
                sqlite_file.mark_unsynced(self._file)

    def _close(self) -> None:
        self._checkpoint(over=0)
        if self._connection is not None:
            with sqlite_file.log_preserved(self._file):
                self._connection.close()
            self._connection = None


def _any_text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _begin(connection: sqlite3.Connection) -> None:
    deadline = monotonic() + LOCK_TIMEOUT
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                raise
        else:
            return
