"""The copy of a SQLite database into an empty PostgreSQL database.

1. No gateway serves from the file meanwhile, and no process can write to it.
2. Rows are copied in batches. The transaction of each batch also notes in `interlock_copy` how far
   the copy is, so a killed copy is continued. If the file has changed since, it begins again.
3. The version of the tables is written last. Until then, no gateway can use the new database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Table

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import StoreCorrupt, StoreError, StoreLocked
from interlock.store.backup.resealing import result_under
from interlock.store.backup.saving import own_tables
from interlock.store.backup.unused import unused
from interlock.store.database import postgres, sqlite_file
from interlock.store.database.creation import COPYING
from interlock.store.database.database import open_database
from interlock.store.database.error_mapping import store_error
from interlock.store.database.location import public_name, without_links
from interlock.store.database.schema_version import REVISION
from interlock.store.database.tables import (
    UtcDateTime,
    compatibility,
    kept_chunks,
    kept_results,
    metadata,
    replicas,
    versions,
)
from interlock.store.kept_results import CHUNK, file_of
from interlock.store.kept_results import FOLDER as RESULTS
from interlock.store.kept_results import KIND as RESULTS_KIND

ROWS, BYTES = 500, 8 * 1024 * 1024  # of a batch, which ends with the row that reaches one of them
_TIMEOUT = 600.0  # seconds to wait for an answer of PostgreSQL
_LOCK = 0x696E7465726C6364  # the key of the advisory lock of a copy
_SPECIAL = {versions.name, compatibility.name, replicas.name, kept_chunks.name}
_COUNTS = {name: f'SELECT count(*) FROM "{name}"' for name in metadata.tables}  # noqa: S608
_EMPTYING = {name: f'DELETE FROM "{name}"' for name in metadata.tables}  # noqa: S608
_CREATE_STATE = f"CREATE TABLE {COPYING} (stamp text NOT NULL, done text NOT NULL)"
_BEGIN_STATE = f"INSERT INTO {COPYING} VALUES ($1, '{{}}')"  # noqa: S608
_READ_STATE = f"SELECT stamp, done FROM {COPYING}"  # noqa: S608
_WRITE_STATE = f"UPDATE {COPYING} SET stamp = $1, done = $2"  # noqa: S608
_DROP_STATE = f"DROP TABLE {COPYING}"
_ADD_UP = (
    "UPDATE stored_bytes SET bytes = COALESCE((SELECT sum(bytes) FROM kept_results), 0)"
    " WHERE kind = $1 AND owner = ''"
)
_SEQUENCE = "SELECT setval(pg_get_serial_sequence('changes', 'id'), max(id)) FROM changes"

Report = Callable[[str], None]


class Copied(NamedTuple):
    """The number of rows in the new database, and whether they were there before."""

    rows: int
    is_old: bool


async def copy_database(path: Path, url: str, key: GatewayKey | None, report: Report) -> Copied:
    """Copy a SQLite database into a PostgreSQL database; continue a copy that was interrupted.

    Args:
        path: The SQLite file.
        url: The URL of the PostgreSQL database.
        key: The key beside the file; None if there is none.
        report: Called with a line about each step.

    Raises:
        StoreError: The databases cannot be used, or the new one contains other data.
        ConfigError: The key is not that of the database.
    """
    name = public_name(url)
    with unused(path), closing(_source(path)) as source:
        _check_source(source, path, key)
        target = await postgres.connect(url, timeout=_TIMEOUT, command_timeout=_TIMEOUT)
        try:
            if not await target.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK):
                raise StoreLocked(f"another copy into {name} is running: wait for it")
            copy = _Copy(source, path, target, name, key)
            if await copy.is_done():
                return Copied(sum(copy.counts().values()), is_old=True)
            await copy.begin(url, report)
            for table in metadata.sorted_tables:
                if table.name not in _SPECIAL:
                    await copy.copy_table(table, report)
            await copy.finish()
            return Copied(sum(copy.counts().values()), is_old=False)
        except sqlite3.Error as error:
            raise store_error(error, str(path)) from None
        except postgres.server_errors() as error:
            raise store_error(error, name) from None
        finally:
            target.terminate()


class _Copy:
    def __init__(
        self,
        source: sqlite3.Connection,
        path: Path,
        target: Any,
        name: str,
        key: GatewayKey | None,
    ) -> None:
        self._source = source
        self._path = path
        self._target = target
        self._name = name
        self._key = key
        self._stamp = _stamp(path)
        self._done: dict[str, int] = {}  # the number of copied rows by table

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each table in the file."""
        tables = [each.name for each in metadata.sorted_tables if each.name not in _SPECIAL]
        return {each: self._one(_COUNTS[each]) for each in tables}

    async def is_done(self) -> bool:
        """Return whether the new database is a whole copy of the file already.

        Raises:
            StoreError: It contains other data.
        """
        _, names = await own_tables(self._target)
        if versions.name not in names or COPYING in await self._names():
            return False
        counts = {
            each: await self._target.fetchval(_COUNTS[each])
            for each in names
            if each not in (versions.name, compatibility.name)
        }
        if not any(counts.values()):
            return False
        own = "SELECT mac FROM audit_register"
        results = kept_results.name  # expired ones may be deleted
        is_same = all(counts.get(each) == n for each, n in self.counts().items() if each != results)
        if is_same and await self._target.fetchval(own) == self._one(own):
            return True
        raise StoreError(f"{self._name} contains other data: use an empty database")

    async def begin(self, url: str, report: Report) -> None:
        """Create the tables, or find out how far an interrupted copy is."""
        if COPYING not in await self._names():
            await (await open_database(url)).close()
            async with self._target.transaction():
                await self._target.execute("LOCK TABLE alembic_version, gateway_key, audit_heads")
                if await self.is_done():  # a gateway has started meanwhile
                    raise StoreError(f"{self._name} is used by a gateway: use another database")
                await self._target.execute("DELETE FROM alembic_version")
                await self._target.execute("DELETE FROM schema_compatibility")
                await self._target.execute(_CREATE_STATE)
                await self._target.execute(_BEGIN_STATE, self._stamp)
        stamp, done = await self._target.fetchrow(_READ_STATE)
        if stamp == self._stamp:
            self._done = msgspec.json.decode(done, type=dict[str, int])
            if self._done:
                report("continuing the interrupted copy")
            return
        report("the file has changed since the interrupted copy: beginning again")
        async with self._target.transaction():
            for table in reversed(metadata.sorted_tables):
                await self._target.execute(_EMPTYING[table.name])
            await self._note()

    async def copy_table(self, table: Table, report: Report) -> None:
        start = self._done.get(table.name, 0)
        columns = [column.name for column in table.columns]
        for batch in self._batches(table, columns, start):
            await self._put(table, columns, batch)
        if self._done.get(table.name, 0) > start:
            report(f"{table.name}: {self._done[table.name]:,} rows")

    def _batches(
        self, table: Table, columns: Sequence[str], start: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        names = ", ".join(f'"{each}"' for each in columns)
        order = ", ".join(f'"{each.name}"' for each in table.primary_key.columns)
        sql = f'SELECT {names} FROM "{table.name}" ORDER BY {order} LIMIT -1 OFFSET ?'  # noqa: S608
        times = [i for i, each in enumerate(table.columns) if isinstance(each.type, UtcDateTime)]
        batch, size = [], 0
        for row in self._source.execute(sql, (start,)):
            values = list(row)
            for i in times:
                values[i] = _time(values[i])
            batch.append(tuple(values))
            size += sum(len(each) for each in row if isinstance(each, str | bytes))
            if len(batch) >= ROWS or size >= BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    async def _put(
        self, table: Table, columns: Sequence[str], batch: list[tuple[Any, ...]]
    ) -> None:
        done = self._done.get(table.name, 0) + len(batch)
        chunks: list[tuple[str, int, bytes]] = []
        if table is kept_results:
            batch, chunks = self._with_bytes(columns, batch)
        try:
            async with self._target.transaction():
                await self._add(table.name, columns, batch)
                await self._add(kept_chunks.name, ("id", "number", "content"), chunks)
                self._done[table.name] = done
                await self._note()
        except _data_errors():
            raise StoreCorrupt(
                f"the table {table.name} of {self._path} has a damaged row after"
                f" {done - len(batch):,} rows: see `interlock audit verify`, or restore a backup"
            ) from None

    async def _add(self, table: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
        if rows:
            await self._target.copy_records_to_table(table, records=rows, columns=columns)

    def _with_bytes(
        self, columns: Sequence[str], batch: Sequence[tuple[Any, ...]]
    ) -> tuple[list[tuple[Any, ...]], list[tuple[str, int, bytes]]]:
        """Return the rows of kept results whose files exist, and the chunks of these files."""
        rows, chunks = [], []
        for values in batch:
            row = dict(zip(columns, values, strict=True))
            try:
                sealed = self._sealed(row)
            except FileNotFoundError:
                continue
            if sealed is None:  # nobody could read it
                continue
            row["file"] = row["id"]
            rows.append(tuple(row.values()))
            parts = range(0, len(sealed), CHUNK)
            chunks += [(row["id"], i, sealed[at : at + CHUNK]) for i, at in enumerate(parts)]
        return rows, chunks

    def _sealed(self, row: Mapping[str, Any]) -> bytes | None:
        """Return an encrypted result, whose file has the name of its id in PostgreSQL."""
        sealed = file_of(self._path.parent / RESULTS, row["file"]).read_bytes()
        if row["file"] == row["id"] or self._key is None:
            return sealed
        return result_under(self._key, self._key, sealed, row, row["id"])  # the key was replaced

    async def finish(self) -> None:
        """Compare the numbers of rows, and let gateways use the database."""
        for table, count in self.counts().items():
            if table != kept_results.name and self._done.get(table, 0) != count:
                raise StoreError(f"the table {table} was not copied whole: run the command again")
        async with self._target.transaction():
            await self._target.execute(_SEQUENCE)
            await self._target.execute(_ADD_UP, RESULTS_KIND)
            await self._target.execute("INSERT INTO alembic_version VALUES ($1)", REVISION)
            await self._target.execute(
                "INSERT INTO schema_compatibility (id, compatible_from) VALUES (1, $1)",
                self._one("SELECT compatible_from FROM schema_compatibility"),
            )
            await self._target.execute(_DROP_STATE)

    async def _note(self) -> None:
        done = msgspec.json.encode(self._done).decode()
        await self._target.execute(_WRITE_STATE, self._stamp, done)

    async def _names(self) -> set[str]:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        return {row["tablename"] for row in await self._target.fetch(query)}

    def _one(self, sql: str) -> Any:
        row = self._source.execute(sql).fetchone()
        return row[0] if row else None


def _source(path: Path) -> sqlite3.Connection:
    """Open a SQLite file, and keep all others from writing until the connection is closed."""
    file = sqlite_file.uri(without_links(path), mode="rw")
    connection = sqlite3.connect(file, uri=True, isolation_level=None)
    try:
        # So that the time of the file shows whether it has changed.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        connection.close()
        raise store_error(error, str(path)) from None
    return connection


def _check_source(source: sqlite3.Connection, path: Path, key: GatewayKey | None) -> None:
    try:
        (revision,) = source.execute("SELECT version_num FROM alembic_version").fetchone()
        owner = source.execute("SELECT fingerprint FROM gateway_key").fetchone()
    except (sqlite3.Error, TypeError):
        raise StoreError(f"{path} is not a database of interlock") from None
    if revision != REVISION:
        raise StoreError(
            f"{path} has tables of version {revision}, not {REVISION}: open it with this version"
            " of interlock first"
        )
    if owner is not None:
        if key is None:
            raise StoreError(
                f"{path} belongs to gateway key {owner[0][:8]}…, which is neither beside it nor in"
                " INTERLOCK_KEY"
            )
        key.check_owner(owner[0], str(path))


def _stamp(path: Path) -> str:
    found = path.stat()
    return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns}"


def _time(value: Any) -> Any:
    return datetime.fromisoformat(value).replace(tzinfo=UTC) if isinstance(value, str) else value


def _data_errors() -> tuple[type[Exception], ...]:
    asyncpg = postgres.import_driver()
    invalid = asyncpg.DataError, asyncpg.IntegrityConstraintViolationError
    return ValueError, TypeError, OverflowError, *invalid
