"""Results kept for users: each is a row in the database, and encrypted bytes.

The bytes are in a file beside a SQLite database, and in further rows of a PostgreSQL database, so
that all its gateways can read them.

1. A file is complete or absent. It is encrypted for its row, so it cannot be read as another's.
2. A file is written before its row and deleted after it, so a row always has its file. A process
   that is killed in between leaves a file without a row, which the next start deletes.
3. When a user's results exceed the limit, that user's oldest results are deleted.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import time
from typing import Any

from msgspec import Struct
from sqlalchemy import Select, bindparam, delete, func, insert, select

from interlock import durable
from interlock.aio import beside
from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Keep, Results
from interlock.errors import MissingExtra, NotKept, StoreCorrupt, StoreError, StoreFull
from interlock.store.chat.space import add_bytes
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database, open_database
from interlock.store.database.disk_reserve import DiskReserve
from interlock.store.database.location import find, folder_beside
from interlock.store.database.rows import storable
from interlock.store.database.tables import kept_chunks, kept_results
from interlock.store.kept import Kept, Owner
from interlock.text.timestamps import now_micros

FOLDER = "results"  # the folder's name, beside the database
SWEEP_EVERY = 60.0  # seconds between two cleanups
# Seconds for which a file may lack a row, because another process may be about to write the row.
ORPHAN_AGE = 600.0
CHUNK = 1024 * 1024  # bytes in a table row
_NONCE_BYTES = 12
KIND = "results"  # the kind of the sum in `stored_bytes`
_ALL = ""  # the owner of the sum of all users

_log = logging.getLogger("interlock.results")


class _Row(Struct):
    id: str
    bytes: int
    file: str
    expires: int


_CHUNKS = (
    select(kept_chunks.c.content)
    .where(kept_chunks.c.id == bindparam("of"))
    .order_by(kept_chunks.c.number)
)
_COLUMNS = [kept_results.c[name] for name in _Row.__struct_fields__]


class KeptResultStore:
    """A store of the results of all users: rows in a database, and files in a folder.

    Args:
        database: The database with the rows.
        folder: The folder with the files; created if it is missing. None to keep the bytes in the
            database.
        key: The key that encrypts the bytes, 32 bytes.
        settings: Returns the current settings of kept results.
        keep: Returns the seconds for which a result is kept.
        clock: Returns the current time in microseconds since 1970.

    Attributes:
        bytes: The size of all results: the sum at the last cleanup, plus this process's changes
            since then.
        refused: The number of results that had no room.
        reserve: Keeps space for the audit trail on the same disk.
    """

    def __init__(
        self,
        database: Database,
        folder: Path | None,
        key: bytes,
        settings: Callable[[], Results],
        *,
        keep: Callable[[], float] = lambda: Keep().results,
        clock: Callable[[], int] = now_micros,
    ) -> None:
        self._clock = clock
        self._database = database
        self._folder = folder
        self._key = key
        self._settings = settings
        self._keep = keep
        self.bytes = 0
        self.refused = 0
        self.reserve = DiskReserve(None if folder is None else folder.parent)

    @classmethod
    @asynccontextmanager
    async def beside(
        cls,
        location: str | Path | None,
        secret: GatewayKey,
        settings: Callable[[], Results],
        database: Database | None = None,
        *,
        keep: Callable[[], float] = lambda: Keep().results,
    ) -> AsyncGenerator[KeptResultStore, None]:
        """Open the results that belong to a database; clean up regularly until the block ends.

        Args:
            location: The location of the database, as for `open_database`.
            secret: The key from which the files' encryption key is derived.
            settings: Returns the current settings of kept results.
            database: The database if it is open already; None to open it.
            keep: Returns the seconds for which a result is kept.

        Raises:
            StoreError: The database cannot be used.
        """
        opened = database or await open_database(location)
        folder = folder_beside(location) / FOLDER if isinstance(find(location), Path) else None
        store = cls(opened, folder, secret.derive(FOLDER), settings, keep=keep)
        try:
            async with beside(store._keep_clean()):
                yield store
        finally:
            if database is None:
                await opened.close()

    async def keep(self, owner: Owner, call: str, content: bytes) -> Kept:
        settings = self._settings()
        if len(content) > settings.per_user:
            raise self._refused(
                f"it is larger than the space of a user ({settings.per_user:,} bytes)"
            )
        try:
            await asyncio.to_thread(self.reserve.check, len(content))
        except StoreFull as error:
            raise self._refused(str(error)) from None
        kept = Kept.new(self._keep(), self._clock())
        sealed = await asyncio.to_thread(self._seal, kept.id, owner, content)
        path = None if self._folder is None else self._folder / kept.id
        try:
            if path is not None:
                await asyncio.to_thread(_write, path, sealed)
        except OSError as error:
            raise NotKept(error.strerror or "the disk fails") from error
        chunks = sealed if path is None else b""
        try:
            dropped = await self._add_row(kept, owner, call, len(content), settings, chunks)
        except StoreError as error:
            if path is not None:
                await asyncio.to_thread(path.unlink, missing_ok=True)
            if isinstance(error, StoreFull):
                raise self._refused(str(error)) from None
            raise NotKept("the database cannot be written") from error
        self.bytes += len(content)
        await self._delete_files(dropped)
        return kept

    def _refused(self, problem: str) -> NotKept:
        self.refused += 1
        return NotKept(problem)

    async def load(self, owner: Owner, id: str) -> bytes | None:
        columns = kept_results.c
        query = select(columns.file).where(
            columns.id == storable(id),
            columns.tenant == storable(owner[0]),
            columns.user == storable(owner[1]),
            columns.expires > self._clock(),
        )

        async def work(connection: AsyncConnection) -> tuple[str | None, bytes]:
            name: str | None = await connection.scalar(query)
            if name is None or self._folder is not None:
                return name, b""
            rows = await connection.execute(_CHUNKS, {"of": name})
            return name, b"".join(row.content for row in rows)

        name, chunks = await self._database.read(work)
        return None if name is None else await asyncio.to_thread(self._read, name, owner, chunks)

    # Bytes

    def _seal(self, name: str, owner: Owner, content: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        sealed: bytes = self._cipher().encrypt(nonce, content, bound_to(name, owner))
        return nonce + sealed

    def _read(self, name: str, owner: Owner, chunks: bytes) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        try:
            sealed = chunks if self._folder is None else (self._folder / name).read_bytes()
            nonce, content = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            opened: bytes = self._cipher().decrypt(nonce, content, bound_to(name, owner))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"kept result {name} cannot be read: {error.strerror}") from None
        except (InvalidTag, ValueError):
            _log.error("kept result %s was changed, or is sealed with another key", name)
            return None
        return opened

    def _cipher(self) -> Any:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ModuleNotFoundError as error:
            raise MissingExtra("keeping results", "serve") from error
        return AESGCM(self._key)

    async def _delete_files(self, rows: Sequence[_Row]) -> None:
        self.bytes -= sum(row.bytes for row in rows)
        if (folder := self._folder) is None:
            return

        def delete_all() -> None:
            for row in rows:
                with suppress(OSError):  # the next start deletes the file
                    (folder / row.file).unlink(missing_ok=True)

        if rows:
            await asyncio.to_thread(delete_all)

    # Rows

    async def _add_row(
        self, kept: Kept, owner: Owner, call: str, size: int, limits: Results, chunks: bytes
    ) -> list[_Row]:
        """Add a row and its chunks; delete and return the owner's oldest rows above the limit."""
        columns = kept_results.c
        now, tenant, user = self._clock(), storable(owner[0]), storable(owner[1])
        of_owner = (columns.tenant == tenant, columns.user == user)
        row = {
            "id": kept.id,
            "tenant": tenant,
            "user": user,
            "call": call,
            "bytes": size,
            "file": kept.id,
            "created": now,
            "expires": kept.expires,
        }

        async def work(connection: AsyncConnection) -> list[_Row]:
            query = select(*_COLUMNS).where(*of_owner).order_by(columns.created.desc())
            left, dropped = limits.per_user - size, []
            for each in await _rows(connection, query):
                left -= each.bytes
                if left < 0 or each.expires <= now:
                    dropped.append(each)
            await _delete(connection, dropped)
            total = await add_bytes(connection, _ALL, KIND, size)
            if total > limits.total:
                taken = f"the results of all users take {total:,} bytes with it"
                raise StoreFull(f"{taken} (limit {limits.total:,}); older ones expire")
            await connection.execute(insert(kept_results).values(**row))
            for number, begin in enumerate(range(0, len(chunks), CHUNK)):
                chunk = {"id": kept.id, "number": number, "content": chunks[begin : begin + CHUNK]}
                await connection.execute(insert(kept_chunks).values(chunk))
            return dropped

        return await self._database.write(work)

    # Cleaning up

    async def _keep_clean(self) -> None:
        is_first = True
        while True:
            try:
                if is_first and self._folder is not None:
                    await self.reconcile(self._folder)
                is_first = False
                await self.sweep()
            except (StoreError, OSError) as error:
                _log.warning("kept results are not cleaned up: %s", error)
            await asyncio.sleep(SWEEP_EVERY)

    async def sweep(self) -> None:
        columns = kept_results.c
        query = select(*_COLUMNS).where(columns.expires <= self._clock())
        expired = await self._database.read(lambda each: _rows(each, query))
        if expired:
            await self._database.write(lambda each: _delete(each, expired))
            await self._delete_files(expired)
        total = select(func.sum(columns.bytes))
        self.bytes = int(await self._database.read(lambda each: each.scalar(total)) or 0)

    async def reconcile(self, folder: Path) -> None:
        """Delete files without rows, and rows without files.

        Raises:
            StoreError: The database fails.
            OSError: The folder cannot be read.
        """
        # Before the rows are read, because a file is written before its row.
        ages = await asyncio.to_thread(_ages, folder)
        rows = await self._database.read(lambda each: _rows(each, select(*_COLUMNS)))
        known = {row.file for row in rows}
        for name, age in ages.items():
            if name not in known and age > ORPHAN_AGE:
                _log.info("kept result %s has no row, and is deleted", name)
                await asyncio.to_thread((folder / name).unlink, missing_ok=True)
        lost = [row for row in rows if row.file not in ages]
        lost = [row for row in lost if not (folder / row.file).exists()]
        if lost:
            await self._database.write(lambda connection: _delete(connection, lost))


def _write(path: Path, sealed: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(durable.NotSynced):  # reading detects a file that a power cut lost
        durable.replace(path, sealed)


def file_of(folder: Path, name: str) -> Path:
    """Return the path of a result's file.

    Raises:
        StoreCorrupt: The name is not one of a file in the folder, so the row was tampered with.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise StoreCorrupt(
            f"the row of a kept result names the file {name!r}: it was tampered with"
        )
    return folder / name


def _ages(folder: Path) -> dict[str, float]:
    now, ages = time(), {}
    with suppress(FileNotFoundError), os.scandir(folder) as found:
        for entry in found:
            with suppress(FileNotFoundError):  # the file was deleted in the meantime
                ages[entry.name] = now - entry.stat().st_mtime
    return ages


def delete_files(location: str | Path | None, names: Iterable[str]) -> None:
    """Delete files whose rows have been deleted; missing files are ignored.

    Args:
        location: The location of the database, as for `open_database`.
        names: The names of the files.
    """
    folder = folder_beside(location) / FOLDER
    for name in names:
        with suppress(OSError):  # the next start of a gateway deletes the file
            (folder / name).unlink(missing_ok=True)


async def _rows(connection: AsyncConnection, query: Select[Any]) -> list[_Row]:
    return [_Row(*row) for row in await connection.execute(query)]


async def _delete(connection: AsyncConnection, rows: Iterable[_Row]) -> None:
    ids = [row.id for row in rows]
    for begin in range(0, len(ids), 500):  # every SQLite version allows 500 parameters
        some = ids[begin : begin + 500]
        removed = delete(kept_results).where(kept_results.c.id.in_(some))
        sizes = await connection.execute(removed.returning(kept_results.c.bytes))
        await add_bytes(connection, _ALL, KIND, -sum(size for (size,) in sizes))


def bound_to(name: str, owner: Owner) -> bytes:
    """Return the place for which a result is encrypted: its file's name, and its owner."""
    return "\0".join((name, *owner)).encode("utf-8", "surrogatepass")
