"""A store of API keys, which contains hashes instead of the keys themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace
from sqlalchemy import Row, insert, select, update

from interlock.auth import key_format
from interlock.auth.stored_key import READ_ONLY, StoredKey
from interlock.errors import KeyEnded, UnknownKey
from interlock.store.database import tables
from interlock.store.database.changes import ChangeReader, change_statement
from interlock.store.database.claims import Statement
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database, open_database
from interlock.store.database.recorded import Record, claim_of, make_change, statement_of
from interlock.store.database.rows import storable
from interlock.text.timestamps import now_micros
from interlock.types import JsonObject

KIND: Final = "keys"  # the kind of rows in `changes`
YEAR = 365 * 24 * 3600.0  # seconds; the default lifetime of a key

_CHANGEABLE = ("name", "scopes", "view", "limits", "expires", "revoked", "replaced_by")

_Keys: TypeAlias = list[StoredKey]


class KeyStore:
    """A store of API keys in one database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes = ChangeReader(KIND)

    @classmethod
    @asynccontextmanager
    async def open(cls, location: str | Path | None = None) -> AsyncIterator[KeyStore]:
        database = await open_database(location)
        try:
            yield cls(database)
        finally:
            await database.close()

    async def create(
        self,
        user: str,
        *,
        name: str = "",
        scopes: Sequence[str] = READ_ONLY,
        view: str = "",
        limits: Mapping[str, Any] | None = None,
        lifetime: float | None = YEAR,
        created_by: str = "",
        record: Record | None = None,
    ) -> tuple[StoredKey, str]:
        """Create an API key.

        Args:
            user: The user to whom the key belongs, without "user:".
            name: The key's name for display.
            scopes: The scopes that limit the key's rights.
            view: The view that the key is limited to; "" for no limit.
            limits: The key's own rate limits and quotas.
            lifetime: The seconds until the key expires; None if it never expires.
            created_by: The id of the principal that creates the key.
            record: Writes the change with its audit record, as in all methods below.

        Returns:
            The stored key, and the secret key itself, which cannot be read again.
        """
        stored, key = _new(
            user, name, tuple(scopes), view, dict(limits or {}), lifetime, created_by, now_micros()
        )

        added = claim_of(
            insert(tables.keys).values(_row(stored)), change_statement(KIND, stored.id)
        )
        await make_change(self._database, added, record, None, stored)
        return stored, key

    async def list(self) -> _Keys:
        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            query = select(tables.keys).order_by(tables.keys.c.created, tables.keys.c.id)
            return (await connection.execute(query)).all()

        return [_key(row) for row in await self._database.read(work)]

    async def get(self, id: str) -> StoredKey:
        """Return the key with this id.

        Raises:
            UnknownKey: No key has this id.
        """

        async def work(connection: AsyncConnection) -> StoredKey:
            return await _load(connection, id)

        return await self._database.read(work)

    async def rotate(
        self,
        id: str,
        *,
        overlap: float = 24 * 3600.0,
        created_by: str = "",
        record: Record | None = None,
    ) -> tuple[StoredKey, str]:
        """Replace an active key; the old key stays valid for `overlap` seconds.

        `record` is also called with the new key.

        Returns:
            The stored new key, and the secret key itself.

        Raises:
            UnknownKey: No key has this id.
            KeyEnded: The key was revoked or has expired.
        """
        while True:
            now, before = now_micros(), await self.get(id)
            _check_active(before, now)
            stored, key = _new(
                *(before.user, before.name, before.scopes, before.view, before.limits),
                *(before.lifetime, created_by, now),
            )
            end = now + int(overlap * 1_000_000)
            expires = end if before.expires is None else min(end, before.expires)
            after = replace(before, replaced_by=stored.id, expires=expires)
            added = statement_of(insert(tables.keys).values(_row(stored)))
            then = ((added[0], [added[1]]), change_statement(KIND, stored.id))
            if await self._make(before, after, record, stored, then=then):
                return stored, key

    async def change(
        self, id: str, change: Callable[[StoredKey], StoredKey], *, record: Record | None = None
    ) -> tuple[StoredKey, StoredKey]:
        """Change an active key's rights.

        Args:
            id: The id of the key.
            change: Returns the changed key; an exception that it raises is passed on.
            record: Writes the change with its audit record.

        Returns:
            The key before and after the change.

        Raises:
            UnknownKey: No key has this id.
            KeyEnded: The key was revoked or has expired.
        """
        while True:
            before = await self.get(id)
            _check_active(before, now_micros())
            after = change(before)
            if await self._make(before, after, record):
                return before, after

    async def revoke(self, id: str, *, record: Record | None = None) -> StoredKey:
        """Revoke a key immediately; revoking it again has no effect.

        Raises:
            UnknownKey: No key has this id.
        """
        while True:
            now, before = now_micros(), await self.get(id)
            if before.revoked is not None and before.revoked <= now:
                return before
            after = replace(before, revoked=now)
            if await self._make(before, after, record):
                return after

    async def _make(
        self,
        before: StoredKey,
        after: StoredKey,
        record: Record | None,
        *more: StoredKey,
        then: Sequence[Statement] = (),
    ) -> bool:
        """Change a key; return False if another process has changed it since `before` was read."""
        was, row = _row(before), _row(after)
        columns = tables.keys.c
        where = [columns[name] == was[name] for name in ("id", *_CHANGEABLE)]
        values = {name: row[name] for name in _CHANGEABLE}
        changed = update(tables.keys).where(*where).values(values)
        claim = claim_of(changed, change_statement(KIND, before.id), *then)
        return await make_change(self._database, claim, record, before, after, *more)

    async def load(self) -> _Keys:
        async def work(connection: AsyncConnection) -> None:
            await self._changes.read(connection)

        await self._database.read(work)
        return await self.list()

    async def changed(self) -> _Keys:
        """Return the keys that changed since the last call to `load` or `changed`."""

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            ids = await self._changes.read(connection)
            if not ids:
                return []
            query = select(tables.keys).where(tables.keys.c.id.in_(ids))
            return (await connection.execute(query)).all()

        return [_key(row) for row in await self._database.read(work)]

    async def touch(self, used: Mapping[str, int]) -> None:
        async def work(connection: AsyncConnection) -> None:
            for id, at in used.items():
                await connection.execute(
                    update(tables.keys).where(tables.keys.c.id == id).values(last_used=at)
                )

        await self._database.write(work)


def _new(
    user: str,
    name: str,
    scopes: tuple[str, ...],
    view: str,
    limits: JsonObject,
    lifetime: float | None,
    created_by: str,
    now: int,
) -> tuple[StoredKey, str]:
    key, id = key_format.generate()
    stored = StoredKey(
        id=id,
        hash=key_format.digest(key),
        user=storable(user),
        name=storable(name),
        scopes=scopes,
        view=storable(view),
        limits=limits,
        created=now,
        expires=None if lifetime is None else now + int(lifetime * 1_000_000),
        created_by=storable(created_by),
    )
    return stored, key


async def _load(connection: AsyncConnection, id: str) -> StoredKey:
    query = select(tables.keys).where(tables.keys.c.id == storable(id))
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise UnknownKey(f"no key {id!r}: see `interlock keys list`")
    return _key(row)


def _check_active(key: StoredKey, now: int) -> None:
    state = "rotated" if key.replaced_by else key.state(now)
    if state != "active":
        raise KeyEnded(f"key {key.id} is {state}: create a new one")


def _row(key: StoredKey) -> dict[str, Any]:
    row = msgspec.structs.asdict(key)
    encoded = {name: msgspec.json.encode(row[name]).decode() for name in ("scopes", "limits")}
    return row | encoded


def _key(row: Row[Any]) -> StoredKey:
    fields = dict(row._mapping)
    fields["scopes"] = msgspec.json.decode(fields["scopes"], type=tuple[str, ...])
    fields["limits"] = msgspec.json.decode(fields["limits"], type=JsonObject)
    return StoredKey(**fields)
