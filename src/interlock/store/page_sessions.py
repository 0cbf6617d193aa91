"""A store of page sessions and one-time codes, which contains only hashes of their secrets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, delete, insert, or_, select, update

from interlock.auth.page_session import CODE_LIFETIME, IDLE, StoredCode, StoredSession
from interlock.auth.stored_key import TENANT
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.rows import storable
from interlock.store.database.tables import login_codes, page_sessions
from interlock.types import JsonObject

MAX_PER_USER = 100  # sessions; a further login deletes the least recently used session

_COLUMNS = page_sessions.c
_LISTS = ("scopes", "groups")


class PageSessionStore:
    """The `SessionSource` that uses a database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, session: StoredSession) -> None:
        """Store a session; delete expired sessions, and the user's sessions above the limit."""
        now = session.created
        ended = or_(_COLUMNS.expires <= now, _COLUMNS.last_used <= now - IDLE)

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(delete(page_sessions).where(ended))
            surplus = (
                select(_COLUMNS.id_hash)
                .where(*_of_user(session.user, session.tenant))
                .order_by(_COLUMNS.last_used.desc())
                .offset(MAX_PER_USER - 1)
            )
            for row in (await connection.execute(surplus)).all():
                await connection.execute(_deletion(row.id_hash))
            await connection.execute(insert(page_sessions).values(**_row(session)))

        await self._database.write(work)

    async def get(self, id_hash: bytes) -> StoredSession | None:
        query = select(page_sessions).where(_COLUMNS.id_hash == id_hash)

        async def work(connection: AsyncConnection) -> Row[Any] | None:
            return (await connection.execute(query)).one_or_none()

        row = await self._database.read(work)
        return None if row is None else _session(row)

    async def touch(self, id_hash: bytes, now: int) -> None:
        change = update(page_sessions).where(_COLUMNS.id_hash == id_hash).values(last_used=now)
        await self._database.write(lambda connection: connection.execute(change))

    async def delete(self, id_hash: bytes) -> None:
        await self._database.write(lambda connection: connection.execute(_deletion(id_hash)))

    async def of_user(self, user: str, tenant: str = TENANT) -> Sequence[StoredSession]:
        query = (
            select(page_sessions).where(*_of_user(user, tenant)).order_by(_COLUMNS.created.desc())
        )

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(query)).all()

        return [_session(row) for row in await self._database.read(work)]

    async def add_code(self, code: StoredCode) -> None:
        row = msgspec.structs.asdict(code)
        row |= {"scopes": _encoded(code.scopes), "used": int(code.used)}
        has_expired = login_codes.c.expires <= code.expires - CODE_LIFETIME

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(delete(login_codes).where(has_expired))
            await connection.execute(insert(login_codes).values(**row))

        await self._database.write(work)

    async def take_code(self, hash: bytes) -> StoredCode | None:
        same = login_codes.c.hash == hash

        async def work(connection: AsyncConnection) -> StoredCode | None:
            first = update(login_codes).where(same, login_codes.c.used == 0).values(used=1)
            was_first = (await connection.execute(first)).rowcount == 1
            row = (await connection.execute(select(login_codes).where(same))).one_or_none()
            if row is None:
                return None
            fields = row._asdict() | {"used": not was_first}
            fields["scopes"] = tuple(msgspec.json.decode(fields["scopes"]))
            return StoredCode(**fields)

        return await self._database.write(work)


def _of_user(user: str, tenant: str) -> tuple[Any, Any]:
    return _COLUMNS.user == storable(user), _COLUMNS.tenant == tenant


def _deletion(id_hash: bytes) -> Any:
    return delete(page_sessions).where(_COLUMNS.id_hash == id_hash)


def _row(session: StoredSession) -> dict[str, Any]:
    row = msgspec.structs.asdict(session)
    row["user"], row["view"] = storable(session.user), storable(session.view)
    return row | {name: _encoded(row[name]) for name in (*_LISTS, "claims")}


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _session(row: Row[Any]) -> StoredSession:
    fields = dict(row._mapping)
    for name in _LISTS:
        fields[name] = msgspec.json.decode(fields[name], type=tuple[str, ...])
    fields["claims"] = msgspec.json.decode(fields["claims"], type=JsonObject)
    return StoredSession(**fields)
