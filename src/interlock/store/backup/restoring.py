"""The restoration of a backup to a place without data.

1. Every file is checked against the signed list of the backup before anything is restored.
2. A SQLite database appears last, and its folders before it. If the process is killed in between,
   these folders contain a mark, and the next restoration replaces them.
3. A PostgreSQL database has a table as its mark until its approvals have expired. No gateway can
   use the database meanwhile, even if `pg_restore` outlives a killed process.
4. Approvals that were open at the time of the backup expire, because they may have been used since.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from interlock.auth.gateway_key import FILE_NAME, GatewayKey
from interlock.errors import StoreCorrupt, StoreError, StoreFull, StoreLocked
from interlock.store.backup.manifest import (
    BackupFile,
    Manifest,
    copy_file,
    describe_file,
    open_file,
    read_manifest,
    sync_folder,
)
from interlock.store.backup.postgres_programs import restore_arguments, run_program
from interlock.store.backup.saving import DUMP, HEADS, SQLITE, own_tables, stoppable
from interlock.store.backup.staging import locked_folder
from interlock.store.backup.unused import refuse_other_user
from interlock.store.database import postgres, sqlite_file
from interlock.store.database.claims import numbered
from interlock.store.database.creation import RESTORING
from interlock.store.database.disk_reserve import free_bytes
from interlock.store.database.error_mapping import damage_error, store_error
from interlock.store.database.location import find, folder_beside, public_name
from interlock.store.database.tables import metadata, versions
from interlock.store.kept_results import FOLDER as RESULTS
from interlock.text.timestamps import now_micros

_MARK = ".restoring"  # in folders that belong to a restoration that has not ended
_TIMEOUT = 60.0  # seconds to wait for an answer of PostgreSQL
_LOCK = 0x696E7465726C6365  # the key of the advisory lock of a restoration
# Ends the program of a restoration that was killed, and waits for its end (milliseconds).
_END_PROGRAM = (
    "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND usename = current_user"
    " AND application_name = 'interlock pg_restore'"
)
_MARK_TABLE = f"CREATE TABLE IF NOT EXISTS {RESTORING} ()"
_UNMARK_TABLE = f"DROP TABLE {RESTORING}"
_REMOVE = {name: f'DROP TABLE "{name}" CASCADE' for name in (*metadata.tables, versions.name)}
_IS_MARKED = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1"
_EXPIRE = "UPDATE approvals SET expires = ? WHERE state IN ('pending', 'approved') AND expires > ?"


async def restore(location: str | Path | None, folder: Path) -> Manifest:
    """Restore a backup as the database at a location; return the backup's list of files.

    Args:
        location: The location of the database, as in `ConversationStore.open`.
        folder: The folder that `back_up` has made.

    Raises:
        StoreError: The backup is not whole, or there is data at the location; nothing was changed.
        ConfigError: The gateway's key is missing, or is not the backup's.
    """
    found, beside = find(location), folder_beside(location)
    try:
        manifest = read_manifest(folder)
        if (manifest.database == "sqlite") != isinstance(found, Path):
            kind = {"sqlite": "a SQLite file", "postgresql": "PostgreSQL"}[manifest.database]
            raise StoreError(f"{folder} is a backup of {kind}: set gateway.database to one")
        key = GatewayKey.load(beside) if GatewayKey.exists(beside) else None
        manifest.check(key, str(beside / FILE_NAME), folder)
        busy = "another restoration to the same place is running: wait for it"
        name = found.name if isinstance(found, Path) else "postgresql"
        beside.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_other_user(beside)
        refuse_data(found, beside)
        with locked_folder(beside / f".{name}.restoring", busy):
            if isinstance(found, Path):
                await stoppable(lambda _: _restore_sqlite(found, folder, manifest))
            else:
                await _restore_postgres(found, beside, folder, manifest)
    except OSError as error:
        raise StoreError(f"{folder} cannot be restored: {error.strerror or error}") from None
    return manifest


def refuse_data(found: str | Path, beside: Path) -> None:
    """Raise an error if there is a SQLite file, or something that belongs to a database."""
    places = [beside / HEADS]
    if isinstance(found, Path):
        places = [found, sqlite_file.log_of(found), beside / RESULTS, beside / HEADS]
    for place in places:
        is_left = place.is_dir() and (not any(place.iterdir()) or (place / _MARK).exists())
        if not is_left and (place.exists() or place.is_symlink()):
            raise StoreError(
                f"{place} exists, and a backup is never restored over data: move it away"
            )


def _restore_sqlite(path: Path, folder: Path, manifest: Manifest) -> None:
    beside, staging = path.parent, path.parent / f".{path.name}.restoring"
    needed = sum(each.bytes for each in manifest.files.values())
    if (free := free_bytes(staging)) < needed:
        raise StoreFull(f"{beside} has no room: {free:,} bytes are free, {needed:,} needed")
    _copy_folders(folder, staging, manifest, (RESULTS, HEADS))
    database = staging / SQLITE
    _copy_checked(folder, SQLITE, database, manifest.files)
    try:
        with closing(sqlite3.connect(database)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise damage_error(verdict, str(folder / SQLITE))
            connection.execute(_EXPIRE, [now_micros()] * 2)
            connection.commit()
    except sqlite3.Error as error:
        raise store_error(error, str(folder / SQLITE)) from None
    _put_folders(staging, beside, (RESULTS, HEADS))
    try:
        os.link(database, path)
    except FileExistsError:
        raise StoreError(f"{path} exists: another program has just created it") from None
    sync_folder(beside)
    _unmark(beside, (RESULTS, HEADS))


async def _restore_postgres(url: str, beside: Path, folder: Path, manifest: Manifest) -> None:
    staging = beside / ".postgresql.restoring"
    connection = await postgres.connect(url, timeout=_TIMEOUT, command_timeout=_TIMEOUT)
    try:
        await stoppable(lambda _: _copy_folders(folder, staging, manifest, (HEADS,)))
        await _begin(connection, public_name(url), folder, manifest)
        descriptor = _open_checked(folder, DUMP, manifest.files)
        try:
            await run_program("pg_restore", restore_arguments(url), url, descriptor)
        finally:
            os.close(descriptor)
        _put_folders(staging, beside, (HEADS,))
        async with connection.transaction():
            await connection.execute(numbered(_EXPIRE), *[now_micros()] * 2)
            await connection.execute(_UNMARK_TABLE)
    except postgres.driver_errors() as error:
        raise store_error(error, public_name(url)) from None
    finally:
        connection.terminate()
    _unmark(beside, (HEADS,))


async def _begin(connection: Any, name: str, folder: Path, manifest: Manifest) -> None:
    """Mark an empty database, or remove what a killed restoration has left in it."""
    if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
        raise StoreLocked(f"another restoration into {name} is running: wait for it")
    is_left = await connection.fetchval(_IS_MARKED, RESTORING)
    if is_left:
        await connection.execute(_END_PROGRAM)
    schema, tables = await own_tables(connection)
    if tables and not is_left:
        raise StoreError(f"{name} has tables of interlock ({tables[0]}): use an empty database")
    if schema != manifest.schema:
        raise StoreError(
            f"{folder} is a backup of the schema {manifest.schema!r}, but the tables of {name}"
            f" would be in {schema!r}: use a database where that is the first schema"
        )
    for table in tables:
        await connection.execute(_REMOVE[table])
    await connection.execute(_MARK_TABLE)


# Files


def _open_checked(folder: Path, name: str, files: dict[str, BackupFile]) -> int:
    if name not in files:
        raise StoreCorrupt(f"{folder} is not a whole backup: it has no {name}; use another backup")
    try:
        descriptor = open_file(folder / name)
    except FileNotFoundError:
        raise StoreCorrupt(f"{folder / name} is missing: use another backup") from None
    if describe_file(descriptor) != files[name]:
        os.close(descriptor)
        raise _changed(folder / name)
    return descriptor


def _copy_checked(folder: Path, name: str, target: Path, files: dict[str, BackupFile]) -> None:
    if name not in files:
        raise StoreCorrupt(f"{folder} is not a whole backup: it has no {name}; use another backup")
    try:
        if copy_file(folder / name, target) != files[name]:
            raise _changed(folder / name)
    except FileNotFoundError:
        raise StoreCorrupt(f"{folder / name} is missing: use another backup") from None


def _changed(path: Path) -> StoreCorrupt:
    return StoreCorrupt(f"{path} was cut or changed after the backup: use another backup")


def _copy_folders(folder: Path, staging: Path, manifest: Manifest, inner: Iterable[str]) -> None:
    for each in inner:
        if (folder / each).is_symlink():
            raise StoreError(f"{folder / each} is a symbolic link")
        names = [name for name in manifest.files if name.startswith(f"{each}/")]
        if names:
            (staging / each).mkdir(mode=0o700)
            (staging / each / _MARK).touch(mode=0o600)
        for name in names:
            _copy_checked(folder, name, staging / name, manifest.files)


def _put_folders(staging: Path, beside: Path, inner: Iterable[str]) -> None:
    for each in inner:
        if (beside / each / _MARK).exists():  # a restoration was killed
            shutil.rmtree(beside / each)
        if (staging / each).exists():
            sync_folder(staging / each)
            (staging / each).rename(beside / each)


def _unmark(beside: Path, inner: Iterable[str]) -> None:
    for each in inner:
        with suppress(FileNotFoundError):
            (beside / each / _MARK).unlink()
