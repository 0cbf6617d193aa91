"""The replacement of a gateway's key, in one transaction.

1. No gateway and no command may record calls meanwhile: each holds a lock, and a new one cannot
   begin, because the transaction of its first record checks the database's key.
2. The transaction encrypts everything again, signs the end of every audit chain with the new key,
   and keeps what the old records need in `retired_keys`. Before it, the old key is the database's;
   after it, the new one is.
3. A file `gateway.key` is replaced after the transaction. If the process is killed in between, the
   new key is in `gateway.key.next`, and the next call completes the replacement.
4. A head or a register that the old key did not sign stays unsigned, so damage stays visible.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from sqlalchemy import delete, func, insert, select, text, update

from interlock import aio
from interlock.auth.gateway_key import FILE_NAME, NEXT, VARIABLE, GatewayKey
from interlock.config.gateway import Audit
from interlock.errors import ConfigError, StoreError, StoreLocked
from interlock.store.audit.copies import copy_folder
from interlock.store.audit.copy_reading import writers_in
from interlock.store.audit.heads import Register, StoredHead
from interlock.store.audit.postgres_tables import lock_of
from interlock.store.audit.upkeep import AuditUpkeep
from interlock.store.audit.writer import AuditRecord, AuditWriter
from interlock.store.backup.manifest import sync_folder
from interlock.store.backup.resealing import HashOf, Resealed, Resealing
from interlock.store.backup.unused import refuse_other_user, refuse_writers, unused
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database, open_database
from interlock.store.database.key_owner import claim, read_retired
from interlock.store.database.location import find, folder_beside, public_name
from interlock.store.database.sqlite_file import uri
from interlock.store.database.tables import audit_heads, audit_register, gateway_key, retired_keys
from interlock.store.kept_results import FOLDER as RESULTS
from interlock.text.timestamps import now_micros

NEW_VARIABLE = "INTERLOCK_NEW_KEY"
_OPERATOR = "user:local"
_OTHERS = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name = 'interlock' AND pid <> pg_backend_pid()"
)
_LOCK = text("LOCK TABLE gateway_key, audit_heads, audit_register IN ACCESS EXCLUSIVE MODE")
_SQLITE = b"SQLite format 3\0"  # begins each SQLite file
_FINGERPRINT = "SELECT fingerprint FROM gateway_key"
_IS_DEAD = text("SELECT pg_try_advisory_xact_lock(:lock)")


class ReplacedKey(NamedTuple):
    """A replacement of a key.

    Attributes:
        old, new: The ids of the keys.
        resealed: The counts of what was encrypted again; None if that was done before.
        kept: The file with the old key; None if the key is not in a file.
    """

    old: str
    new: str
    resealed: Resealed | None
    kept: Path | None


async def rotate_key(location: str | Path | None, audit: Audit, hash_of: HashOf) -> ReplacedKey:
    """Replace the key of a database, or complete a replacement that was interrupted.

    The new key is that of INTERLOCK_NEW_KEY if the present one is in INTERLOCK_KEY, and else a
    random one.

    Args:
        location: The location of the database, as in `ConversationStore.open`.
        audit: The settings of the audit trail.
        hash_of: Returns the hash of a call's arguments, by which its approval is found.

    Raises:
        StoreError: The database cannot be used; StoreLocked: other processes use it.
        ConfigError: A key is missing, or is not the database's.
    """
    found, folder = find(location), folder_beside(location)
    if not GatewayKey.exists(folder):
        raise ConfigError(f"neither {folder / FILE_NAME} nor {VARIABLE} has a key to replace")
    with _alone(folder), unused(found) if isinstance(found, Path) else nullcontext():
        file = None if os.environ.get(VARIABLE, "").strip() else KeyFile(folder)
        if file is not None and os.environ.get(NEW_VARIABLE, "").strip():
            raise ConfigError(
                f"{NEW_VARIABLE} is set, but the key is in {folder / FILE_NAME}, and its"
                f" replacement is random: unset {NEW_VARIABLE}"
            )
        old, new = _variables() if file is None else file.keys()
        database = await open_database(location)
        try:
            resealed = None
            if await _owner(database) != new.fingerprint:
                await claim(database, old)
                if file is not None:
                    await aio.in_thread(lambda: _refuse_others(folder, found, old))
                async with _recording(location, audit, database, old) as writer:
                    if writer is not None:
                        await writer.append(_about("key_replacement_started", old, new))
                        await AuditUpkeep(writer, old, keep=0).close_dead_writers()
                copied = await aio.in_thread(lambda: writers_in(copy_folder(audit, location)))
                replacement = _Replacement(found, old, new, copied, hash_of)
                resealed = await replacement.run(database, file)
            elif file is not None:
                file.replace(old)
            await claim(database, new)
            async with _recording(location, audit, database, new) as writer:
                if writer is not None:
                    await writer.append(_about("key_replaced", old, new))
        finally:
            await database.close()
    return ReplacedKey(old.id, new.id, resealed, None if file is None else file.kept(old))


# The keys


class KeyFile:
    """The file `gateway.key` while it is replaced.

    Args:
        folder: The folder of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._path = (folder / FILE_NAME).resolve()
        self._next = self._path.with_name(NEXT)

    def keys(self) -> tuple[GatewayKey, GatewayKey]:
        """Return the present key and the next one, which is created if it is missing.

        Raises:
            ConfigError: A key cannot be read or created.
        """
        with suppress(FileExistsError):  # an interrupted replacement
            GatewayKey.random().write(self._next)
        return GatewayKey.read(self._path), GatewayKey.read(self._next)

    def kept(self, old: GatewayKey) -> Path:
        """Return the file in which the old key stays."""
        return self._path.with_name(f"{FILE_NAME}.{old.id}")

    def replace(self, old: GatewayKey) -> None:
        """Replace the file; the old key stays in another one.

        Raises:
            ConfigError: The file cannot be replaced.
        """
        try:
            with suppress(FileExistsError):
                os.link(self._path, self.kept(old))
            self._next.replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            raise ConfigError(
                f"{self._path} cannot be replaced by {self._next}: {error.strerror}; do it by hand"
            ) from None


def _variables() -> tuple[GatewayKey, GatewayKey]:
    given = os.environ.get(NEW_VARIABLE, "").strip()
    if not given:
        raise ConfigError(
            f"the key is in {VARIABLE}: set {NEW_VARIABLE} to the new one, such as"
            " `openssl rand -hex 32` prints"
        )
    old = GatewayKey.from_text(os.environ[VARIABLE], VARIABLE)
    new = GatewayKey.from_text(given, NEW_VARIABLE)
    if old.fingerprint == new.fingerprint:
        raise ConfigError(f"{NEW_VARIABLE} is the same key as {VARIABLE}: set it to a new one")
    return old, new


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    refuse_other_user(folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreLocked("another replacement of the key is running: wait for it") from None
        yield
    finally:
        os.close(descriptor)


def _refuse_others(folder: Path, found: str | Path, old: GatewayKey) -> None:
    """Raise an error if another SQLite file in the folder belongs to the same key file."""
    for path in sorted(folder.iterdir()):
        # If a process closes any descriptor of a file, it loses all its locks of the file:
        # https://sqlite.org/howtocorrupt.html. SQLite also locks the "…-shm" file of a database.
        if path.name.endswith("-shm") or not path.is_file():
            continue
        if isinstance(found, Path) and path.samefile(found):
            continue
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) != _SQLITE:
                continue
        with (
            suppress(sqlite3.Error),
            closing(sqlite3.connect(uri(path, mode="ro"), uri=True)) as it,
        ):
            if (old.fingerprint,) in it.execute(_FINGERPRINT).fetchall():
                raise StoreError(
                    f"{path} has the same key: move it to another folder first, with a copy of the"
                    " file of the key"
                )


async def _owner(database: Database) -> str | None:
    owner = select(gateway_key.c.fingerprint)
    found: str | None = await database.read(lambda connection: connection.scalar(owner))
    return found


# The audit trail


@asynccontextmanager
async def _recording(
    location: str | Path | None, audit: Audit, database: Database, key: GatewayKey
) -> AsyncIterator[AuditWriter | None]:
    """Open the audit trail; None if there is none."""
    count = select(func.count()).select_from(audit_heads)
    if audit.mode == "off" and not await database.read(lambda each: each.scalar(count)):
        yield None
        return
    async with AuditWriter.open(location, key=key, settings=audit) as writer:
        yield writer


def _about(action: str, old: GatewayKey, new: GatewayKey) -> AuditRecord:
    body = {"surface": "cli", "action": action, "from": old.id, "to": new.id}
    return AuditRecord("admin", user=_OPERATOR, body=msgspec.json.encode(body))


# The transaction


class _Replacement:
    """The transaction that replaces a key.

    Args:
        found: The database, as `find` returns it.
        old, new: The keys.
        copied: The ids of the writers whose records or heads are in the copy of the trail.
        hash_of: See `rotate_key`.
    """

    def __init__(
        self,
        found: str | Path,
        old: GatewayKey,
        new: GatewayKey,
        copied: set[str],
        hash_of: HashOf,
    ) -> None:
        self._found = found
        self._old = old
        self._new = new
        self._copied = copied
        self._hash_of = hash_of
        self._done = Resealed()

    async def run(self, database: Database, file: KeyFile | None) -> Resealed:
        """Replace the key in the database, and then in its file, even if this is cancelled."""
        working = asyncio.ensure_future(self._run(database, file))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait([working])
            raise

    async def _run(self, database: Database, file: KeyFile | None) -> Resealed:
        await database.write(self._replace)
        if file is not None:
            file.replace(self._old)
        for path in self._done.files:
            with suppress(OSError):  # the next start of a gateway deletes it
                path.unlink(missing_ok=True)
        return self._done

    async def _replace(self, connection: AsyncConnection) -> None:
        await self._refuse_others(connection)
        owner = await connection.scalar(select(gateway_key.c.fingerprint))
        name = str(self._found) if isinstance(self._found, Path) else public_name(self._found)
        self._old.check_owner(owner, name)
        folder = self._found.parent / RESULTS if isinstance(self._found, Path) else None
        resealing = Resealing(
            *(connection, self._old, self._new, folder, self._hash_of, self._done)
        )
        await resealing.run()
        writers = await self._sign_heads(connection)
        await self._retire(connection, writers)
        await connection.execute(update(gateway_key).values(fingerprint=self._new.fingerprint))

    async def _refuse_others(self, connection: AsyncConnection) -> None:
        """Raise an error if another process records calls; new ones wait for this transaction."""
        if isinstance(self._found, Path):
            refuse_writers(self._found)
            return
        await connection.execute(_LOCK)
        heads = audit_heads.c
        query = select(heads.writer).where(heads.ended.is_(None))
        for (writer,) in await connection.execute(query):
            with suppress(ValueError):  # the name is not a writer's id
                if not await connection.scalar(_IS_DEAD, {"lock": lock_of(writer)}):
                    raise StoreLocked("a gateway or a command uses the database: end it first")
        if count := await connection.scalar(_OTHERS):
            raise StoreLocked(
                f"{count} other connections of interlock are open: end all gateways and commands"
            )

    async def _sign_heads(self, connection: AsyncConnection) -> set[str]:
        """Sign all heads and their register with the new key; return the ids of the writers."""
        columns = [audit_heads.c[name] for name in StoredHead.__struct_fields__]
        before = [StoredHead(*row) for row in await connection.execute(select(*columns))]
        after = [head.under(self._old, self._new) for head in before]
        for head in after:
            change = update(audit_heads).where(audit_heads.c.writer == head.writer)
            signed = {"signature": head.signature, "base_signature": head.base_signature}
            await connection.execute(change.values(**signed))
        names = [audit_register.c[name] for name in Register._fields]
        for row in await connection.execute(select(*names)):
            register = Register(*row).under(self._old, before, self._new, after)
            await connection.execute(update(audit_register).values(**register._asdict()))
        return {head.writer for head in before}

    async def _retire(self, connection: AsyncConnection, writers: set[str]) -> None:
        """Remember what the old records need, encrypted with the new key."""
        known = await read_retired(connection, self._old)
        of_others = {writer for each in known for writer in each.writers}
        retired = self._old.retire((writers | self._copied) - of_others, now_micros())
        await connection.execute(delete(retired_keys))
        rows = [
            {
                "fingerprint": each.fingerprint,
                "retired": each.retired,
                "sealed": each.sealed(self._new),
            }
            for each in (*known, retired)
        ]
        await connection.execute(insert(retired_keys), rows)
