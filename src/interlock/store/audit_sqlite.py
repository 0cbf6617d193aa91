"""The audit tables in a SQLite file, written by a thread and a connection of their own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, TypeVar

from interlock.errors import AuditFailed, AuditUnavailable
from interlock.store import sqlite_file
from interlock.store.error_mapping import is_failed_sync, store_error, unsynced_error
from interlock.store.location import without_links

LOCK_TIMEOUT = 0.8  # seconds to wait for a lock of another connection
CLOSE_WAIT = 5.0  # seconds for the last transaction before `close` gives up

_INSERT = (
    'INSERT INTO audit (writer, seq, at, tenant, kind, call, "user", key, server, tool, status,'
    " reason, body, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_INSERT_HEAD = "INSERT INTO audit_heads (writer, started, host, seq, hash) VALUES (?, ?, ?, ?, ?)"
_LAST = "SELECT seq, hash FROM audit WHERE writer = ? ORDER BY seq DESC LIMIT 1"
_END = "UPDATE audit_heads SET ended = ?, seq = ?, hash = ? WHERE writer = ?"

T = TypeVar("T")


class SqliteAudit:
    """The audit tables in one SQLite file. Methods run one at a time, in a thread."""

    def __init__(self, path: Path) -> None:
        self._location = str(path)
        self._file = without_links(path)
        self._connection: sqlite3.Connection | None = None
        self._jobs: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = (
            SimpleQueue()
        )
        # A daemon, so that a disk that hangs does not keep the process from exiting.
        self._thread = Thread(target=self._run_jobs, name="interlock-audit", daemon=True)
        self._thread.start()

    async def insert_head(self, writer: str, started: int, host: str, hash: bytes) -> None:
        """Insert the head of a new chain."""
        await self._submit(lambda: self._write(_INSERT_HEAD, [(writer, started, host, 0, hash)]))

    async def insert(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Insert rows into `audit`, all or none."""
        await self._submit(lambda: self._write(_INSERT, rows))

    async def last(self, writer: str) -> tuple[int, bytes] | None:
        """Return number and hash of a writer's last record."""
        return await self._submit(lambda: self._last(writer))

    async def end(self, writer: str, ended: int, seq: int, hash: bytes) -> None:
        """Record the end of a chain."""
        await self._submit(lambda: self._write(_END, [(ended, seq, hash, writer)]))

    async def close(self) -> None:
        """Close the connection and end the thread, unless the disk hangs for `CLOSE_WAIT`."""
        closing = self._submit(self._close)
        self._jobs.put(None)
        await asyncio.wait([closing], timeout=CLOSE_WAIT)
        if closing.done():
            self._thread.join()

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
                done.get_loop().call_soon_threadsafe(_settle, done, result, error)
            self._checkpoint(over=sqlite_file.LONGEST_LOG)

    def _write(self, sql: str, rows: Sequence[tuple[object, ...]]) -> None:
        if sqlite_file.is_unsynced(self._file):
            raise AuditFailed(str(unsynced_error(self._location)))
        try:
            connection = self._connected()
            _begin(connection)
            connection.executemany(sql, rows)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _last(self, writer: str) -> tuple[int, bytes] | None:
        try:
            found: tuple[int, bytes] | None = self._connected().execute(_LAST, (writer,)).fetchone()
        except sqlite3.Error as error:
            raise self._failed(error) from error
        return found

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
                # `_begin` waits for the lock: SQLite would wait for longer and longer times
                # between two attempts, while other writers overtake it.
                timeout=0.01,
            )
            for setting in sqlite_file.SETTINGS:
                connection.execute(setting)
            self._connection = connection
        return self._connection

    def _checkpoint(self, *, over: int) -> None:
        if self._connection is None or not sqlite_file.needs_checkpoint(self._file, over=over):
            return
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").close()
        except sqlite3.Error as error:  # committed records are still in the log
            if is_failed_sync(error):
                sqlite_file.mark_unsynced(self._file)

    def _close(self) -> None:
        self._checkpoint(over=0)
        if self._connection is not None:
            with sqlite_file.log_preserved(self._file):
                self._connection.close()
            self._connection = None


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


def _settle(done: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if done.done():
        return
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)
