"""Backups of a database, while gateways use it.

1. The backup of a SQLite file is made in one read transaction. Writers do not wait for it.
2. Files of kept results are copied after the database, because a file is written before its row.
   The copy of the audit trail's heads is copied before it, so it never states a later record.
3. The backup is complete or absent: its folder gets its name last.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, TypeVar

from interlock import __version__, aio
from interlock.auth.gateway_key import FILE_NAME, GatewayKey
from interlock.errors import ConfigError, StoreError, StoreFull
from interlock.store.audit.copies import files_of
from interlock.store.backup.manifest import (
    BackupFile,
    Manifest,
    copy_file,
    describe_file,
    open_file,
    write_manifest,
)
from interlock.store.backup.postgres_programs import dump_arguments, dump_line, run_program
from interlock.store.backup.staging import new_folder
from interlock.store.database import postgres, sqlite_file
from interlock.store.database.disk_reserve import RESERVE, free_bytes
from interlock.store.database.error_mapping import damage_error, store_error
from interlock.store.database.location import find, folder_beside, public_name, without_links
from interlock.store.database.tables import metadata, versions
from interlock.store.kept_results import FOLDER as RESULTS
from interlock.store.kept_results import file_of
from interlock.text.timestamps import now_micros, rfc3339

SQLITE, DUMP, HEADS = "database.db", "database.dump", "audit-copy"
_TIMEOUT = 60.0  # seconds to wait for an answer of PostgreSQL
_STEPS = 10_000  # steps of SQLite's machine between two looks whether to stop or to sync
_SYNCED = 2 * 1024 * 1024  # bytes that are written between two syncs
# Errors of the disk of the backup: the database is only read.
_WRITING = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
}

T = TypeVar("T")
IsStopped = Callable[[], bool]


class Saved(NamedTuple):
    """The number of files in a backup, and their bytes."""

    files: int
    bytes: int


class _Snapshot(NamedTuple):
    """A saved database.

    Attributes:
        name: The name of its file in the backup.
        tables: The version of the tables.
        key: The fingerprint of the gateway's key; "" if it has none.
        schema: The schema of the tables in PostgreSQL.
        results: The names of the files of kept results.
    """

    name: str
    tables: str
    key: str
    schema: str = ""
    results: Sequence[str] = ()


async def back_up(
    location: str | Path | None, folder: Path, *, key_file: Path | None = None
) -> Saved:
    """Back up a database, with the kept results and the heads of the audit trail beside it.

    Args:
        location: The location of the database, as in `ConversationStore.open`.
        folder: The new folder of the backup.
        key_file: A new file for the gateway's key, outside of the folder; None to write no key.

    Raises:
        StoreError: The backup cannot be made; nothing is left of it.
        ConfigError: The gateway's key is missing, or is not the database's.
    """
    found = find(location)
    if key_file is not None:
        _check_key_file(key_file, folder)
    beside = folder_beside(location)
    busy = f"another backup into {folder} is running: wait for it, or choose another folder"
    try:
        with new_folder(folder, busy) as staging:
            files = await stoppable(lambda _: _copy_all(files_of(beside / HEADS), staging / HEADS))
            if isinstance(found, Path):
                saved = await stoppable(lambda stop: _save_sqlite(found, beside, staging, stop))
                paths = [file_of(beside / RESULTS, each) for each in saved.results]
                files |= await stoppable(lambda stop: _copy_all(paths, staging / RESULTS, stop))
            else:
                saved = await _save_postgres(found, beside, staging)
            files[saved.name] = await stoppable(lambda _: _synced(staging / saved.name))
            key = _key_of(beside, saved.key, location)
            write_manifest(staging, _manifest(saved, files, key))
            if key_file is not None:
                _write_key(key, key_file)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror or error}") from None
    return Saved(len(files), sum(each.bytes for each in files.values()))


def _synced(path: Path) -> BackupFile:
    """Sync a file, make it readable by its owner only, and return its size and hash."""
    descriptor = open_file(path)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
        return describe_file(descriptor)
    finally:
        os.close(descriptor)


def _manifest(saved: _Snapshot, files: dict[str, BackupFile], key: GatewayKey | None) -> Manifest:
    made = Manifest(
        version=__version__,
        tables=saved.tables,
        created=str(rfc3339(now_micros())),
        database="sqlite" if saved.name == SQLITE else "postgresql",
        schema=saved.schema,
        key=saved.key,
        files=files,
    )
    return made if key is None else made.signed(key)


async def stoppable(work: Callable[[IsStopped], T]) -> T:
    """Run blocking work in a thread; if this is cancelled, stop the work and wait for its end."""
    stop = Event()
    running = asyncio.ensure_future(aio.in_thread(lambda: work(stop.is_set)))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        with suppress(Exception):
            await running
        raise


# The key


def _key_of(beside: Path, fingerprint: str, location: object) -> GatewayKey | None:
    """Return the key that a database belongs to; None if it belongs to none.

    Raises:
        ConfigError: The key is missing, or is another one.
    """
    if not fingerprint:
        return None
    place = beside / FILE_NAME
    if not GatewayKey.exists(beside):
        raise ConfigError(
            f"the database belongs to gateway key {fingerprint[:8]}…, which is neither in {place}"
            " nor in INTERLOCK_KEY: without it, the backup would be worth nothing"
        )
    key = GatewayKey.load(beside)
    key.check_owner(fingerprint, str(location or "the database"))
    return key


def _check_key_file(path: Path, folder: Path) -> None:
    if path.parent.resolve() / path.name in (folder, *folder.parents) or (
        folder.resolve() in (path.parent.resolve(), *path.parent.resolve().parents)
    ):
        raise StoreError(
            f"{path} is in the folder of the backup: a thief of the folder would have the key, too;"
            " write the key elsewhere"
        )
    if path.exists() or path.is_symlink():
        raise StoreError(f"{path} exists: choose a new file for the key")


def _write_key(key: GatewayKey | None, path: Path) -> None:
    if key is None:
        raise StoreError("the database does not belong to a gateway key: leave out --with-key")
    try:
        key.write(path)
    except FileExistsError:
        raise StoreError(f"{path} exists: choose a new file for the key") from None


# SQLite


def _save_sqlite(path: Path, beside: Path, staging: Path, is_stopped: IsStopped) -> _Snapshot:
    file, target = without_links(path), staging / SQLITE
    if not file.is_file():
        raise StoreError(f"{path} does not exist, so nothing can be backed up")
    try:
        with closing(sqlite3.connect(sqlite_file.uri(file, mode="ro"), uri=True)) as connection:
            _tables, owner = _owner(connection, path)
            _key_of(beside, owner, path)  # before the work
            _check_space(file, staging)
            with _synced_often(target) as sync:
                connection.set_progress_handler(lambda: sync() or is_stopped(), _STEPS)
                connection.execute("VACUUM INTO ?", (str(target),))
        with closing(sqlite3.connect(target)) as connection:
            connection.set_progress_handler(is_stopped, _STEPS)
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise damage_error(verdict, str(path))
            tables, owner = _owner(connection, path)
            results = connection.execute("SELECT file FROM kept_results").fetchall()
            return _Snapshot(SQLITE, tables, owner, "", [name for (name,) in results])
    except sqlite3.Error as error:
        is_of_backup = getattr(error, "sqlite_errorcode", None) in _WRITING
        raise store_error(error, str(staging.parent if is_of_backup else path)) from None


@contextmanager
def _synced_often(path: Path) -> Iterator[Callable[[], None]]:
    """Create a file, and yield a function that syncs what was added to it, if that is much.

    Otherwise a sync of the gateway's would have to wait until all of the backup is on the disk.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    synced = 0

    def sync() -> None:
        nonlocal synced
        if (size := os.fstat(descriptor).st_size) - synced >= _SYNCED:
            os.fdatasync(descriptor)
            synced = size

    try:
        yield sync
    finally:
        os.close(descriptor)


def _owner(connection: sqlite3.Connection, path: Path) -> tuple[str, str]:
    """Return the version of the tables, and the fingerprint of the key, or ""."""
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not {versions.name, "messages", "gateway_key"} <= names:
        raise StoreError(f"{path} is not a database of interlock")
    (tables,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    owner = connection.execute("SELECT fingerprint FROM gateway_key").fetchone()
    return tables, owner[0] if owner else ""


def _check_space(file: Path, staging: Path) -> None:
    """Check that the backup fits on its disk, and leaves a gateway there room for its trail."""
    needed = file.stat().st_size
    needed += sum(each.stat().st_size for each in [sqlite_file.log_of(file)] if each.exists())
    if file.stat().st_dev == staging.stat().st_dev:
        needed += RESERVE
    if (free := free_bytes(staging)) < needed:
        raise StoreFull(
            f"{staging.parent} has no room for a backup: {free:,} bytes are free, {needed:,} needed"
        )


def _copy_all(
    paths: Sequence[Path], folder: Path, is_stopped: IsStopped = lambda: False
) -> dict[str, BackupFile]:
    """Copy files into a folder; those that were deleted in the meantime are left out."""
    copied: dict[str, BackupFile] = {}
    if paths:
        folder.mkdir(mode=0o700)
    for path in paths:
        if is_stopped():
            break
        with suppress(FileNotFoundError):
            copied[f"{folder.name}/{path.name}"] = copy_file(path, folder / path.name)
    return copied


# PostgreSQL


async def _save_postgres(url: str, beside: Path, staging: Path) -> _Snapshot:
    connection = await postgres.connect(url, timeout=_TIMEOUT, command_timeout=_TIMEOUT)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            schema, tables = await own_tables(connection)
            if not {versions.name, "messages", "gateway_key"} <= {*tables}:
                raise StoreError(f"{public_name(url)} is not a database of interlock")
            version = await connection.fetchval("SELECT version_num FROM alembic_version")
            owner = await connection.fetchval("SELECT fingerprint FROM gateway_key")
            _key_of(beside, owner or "", public_name(url))
            if shutil.which("pg_dump") is None:
                missing = StoreError("pg_dump is not installed here: type this where it is")
                missing.add_note(dump_line(url, schema, tables))
                raise missing
            await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            snapshot = await connection.fetchval("SELECT pg_export_snapshot()")
            dump = dump_arguments(schema, tables, str(staging / DUMP))
            await run_program("pg_dump", [*dump, f"--snapshot={snapshot}"], url)
            return _Snapshot(DUMP, version, owner or "", schema)
    except postgres.driver_errors() as error:
        raise store_error(error, public_name(url)) from None
    finally:
        connection.terminate()


async def own_tables(connection: Any) -> tuple[str, list[str]]:
    """Return the schema, and the names of our tables in it."""
    schema: str = await connection.fetchval("SELECT current_schema()") or "public"
    rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    own = {*metadata.tables, versions.name}
    return schema, sorted(own & {row["tablename"] for row in rows})
