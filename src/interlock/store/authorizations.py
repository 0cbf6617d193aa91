"""A store of authorizations: what people have allowed clients, and the codes that lead to it.

1. No token is stored. A refresh token is derived from the id, the generation and the salt of its
   authorization; see `gateway.front_door.tokens`.
2. A code is used by the insert of its authorization, in one transaction.
3. A rotation is one update, which of several at once changes the row exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import ColumnElement, Row, delete, insert, or_, select, update

from interlock.auth.stored_authorization import StoredAuthorization, StoredPerson
from interlock.auth.stored_key import TENANT
from interlock.store.database.changes import ChangeReader, change_statement
from interlock.store.database.claims import Claim, Statement
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.on_conflict import KEEP_EXISTING
from interlock.store.database.recorded import Record, claim_of, make_change, statement_of
from interlock.store.database.rows import storable
from interlock.store.database.tables import authorization_codes, authorizations, people, used_ids
from interlock.store.signed_in import row_of

KIND: Final = "authorizations"  # the kind of rows in `changes`
KEPT = 30 * 86_400 * 1_000_000  # microseconds that an ended authorization stays, to explain it

_COLUMNS = authorizations.c
_CODES = authorization_codes.c

_Authorizations: TypeAlias = list[StoredAuthorization]


class AuthorizationStore:
    """The authorizations of one database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes = ChangeReader(KIND)

    # Codes

    async def add_code(
        self, hash: bytes, body: str, expires: int, person: StoredPerson, now: int
    ) -> None:
        """Store a code, and the person who has decided if the person is new; delete old codes.

        Args:
            hash: SHA-256 of the code.
            body: The person's decision, as JSON.
            expires: When the code expires, in microseconds since 1970.
            now: The time now, in microseconds since 1970.
        """

        async def work(connection: AsyncConnection) -> None:
            # A used code stays for a day, because its second use must end what it led to.
            old = now - 86_400 * 1_000_000
            await connection.execute(delete(authorization_codes).where(_CODES.expires < old))
            await connection.execute(
                insert(authorization_codes).values(
                    hash=hash, body=body, expires=expires, authorization=""
                )
            )
            await connection.execute(insert(people).values(row_of(person)).ext(KEEP_EXISTING))

        await self._database.write(work)

    async def code(self, hash: bytes) -> tuple[str, int, str] | None:
        """Return a code's body, its expiry, and the authorization made from it; None if unknown."""
        query = select(_CODES.body, _CODES.expires, _CODES.authorization).where(_CODES.hash == hash)

        async def work(connection: AsyncConnection) -> Row[Any] | None:
            return (await connection.execute(query)).one_or_none()

        row = await self._database.read(work)
        return None if row is None else (row.body, row.expires, row.authorization)

    async def redeem(
        self, hash: bytes, made: StoredAuthorization, *, record: Record | None = None
    ) -> bool:
        """Use a code, and store its authorization; return False if it was used meanwhile."""
        used = update(authorization_codes).where(_CODES.hash == hash, _CODES.authorization == "")
        claim = claim_of(used.values(authorization=made.id), *_additions(made))
        return await make_change(self._database, claim, record, made)

    async def add(self, made: StoredAuthorization, *, record: Record | None = None) -> None:
        """Store an authorization that no code led to."""
        (sql, rows), *then = _additions(made)
        await make_change(self._database, Claim(sql, tuple(rows[0]), then), record, made)

    # Authorizations

    async def get(self, id: str) -> StoredAuthorization | None:
        found = await self._select(_COLUMNS.id == storable(id))
        return found[0] if found else None

    async def list(
        self, *, user: str = "", client: str = "", tenant: str = TENANT, active_at: int = 0
    ) -> _Authorizations:
        """Return the authorizations of a person, of a client, or all, the newest first.

        With `active_at`, only those that are active at this time are read: there may be many that
        have ended.
        """
        where = [_COLUMNS.tenant == tenant]
        if active_at:
            where += [_COLUMNS.ended.is_(None), _COLUMNS.expires > active_at]
        if user:
            where.append(_COLUMNS.user == storable(user))
        if client:
            where.append(_COLUMNS.client == storable(client))
        return await self._select(*where)

    async def expired(self, since: int, now: int) -> Sequence[str]:
        """Return the ids of the authorizations that expired after `since`, until `now`."""
        between = _COLUMNS.expires > since, _COLUMNS.expires <= now
        query = select(_COLUMNS.id).where(*between)

        async def work(connection: AsyncConnection) -> Sequence[str]:
            return [row.id for row in (await connection.execute(query)).all()]

        return await self._database.read(work)

    async def rotate(self, id: str, generation: int, now: int) -> bool:
        """Replace a refresh token of a generation; return False if it was replaced meanwhile."""
        changed = (
            update(authorizations)
            .where(_COLUMNS.id == id, _COLUMNS.generation == generation, _COLUMNS.ended.is_(None))
            .values(generation=generation + 1, rotated=now, last_used=now)
        )
        done = await self._database.write(lambda connection: connection.execute(changed))
        return bool(done.rowcount)

    async def end(
        self, stored: StoredAuthorization, reason: str, now: int, *, record: Record | None = None
    ) -> bool:
        """End an authorization; every gateway follows. Return False if it had ended before."""
        is_active = _COLUMNS.id == stored.id, _COLUMNS.ended.is_(None)
        changed = update(authorizations).where(*is_active).values(ended=now, reason=reason)
        claim = claim_of(changed, change_statement(KIND, stored.id))
        return await make_change(self._database, claim, record, stored)

    async def touch(self, used: Mapping[str, tuple[int, int]]) -> None:
        """Store when authorizations were last used, and the newest generation that was.

        Args:
            used: Microseconds since 1970 and the generation, by the authorization's id.
        """

        async def work(connection: AsyncConnection) -> None:
            for id, (at, generation) in used.items():
                is_same = _COLUMNS.id == id
                later = update(authorizations).where(is_same, _COLUMNS.last_used < at)
                await connection.execute(later.values(last_used=at))
                newer = update(authorizations).where(is_same, _COLUMNS.seen < generation)
                await connection.execute(newer.values(seen=generation))

        await self._database.write(work)

    async def changed(self) -> set[str]:
        """Return the ids of authorizations that changed since the last call."""

        async def work(connection: AsyncConnection) -> set[str]:
            return await self._changes.read(connection)

        return await self._database.read(work)

    async def _select(self, *where: ColumnElement[bool]) -> _Authorizations:
        query = select(authorizations).where(*where).order_by(_COLUMNS.created.desc())

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(query)).all()

        return [_authorization(row) for row in await self._database.read(work)]

    # Statements that count once

    async def use_id(self, hash: bytes, expires: int, now: int) -> bool:
        """Note that a signed statement was used; return False if it had been before."""
        added = insert(used_ids).values(hash=hash, expires=expires).ext(KEEP_EXISTING)

        async def work(connection: AsyncConnection) -> bool:
            await connection.execute(delete(used_ids).where(used_ids.c.expires < now))
            return (await connection.execute(added)).rowcount == 1

        return await self._database.write(work)


def _additions(made: StoredAuthorization) -> list[Statement]:
    """Return the statements that store an authorization, and delete those that ended long ago."""
    before = made.created - KEPT
    old = delete(authorizations).where(or_(_COLUMNS.ended < before, _COLUMNS.expires < before))
    steps = [statement_of(each) for each in (insert(authorizations).values(_row(made)), old)]
    return [*((sql, [row]) for sql, row in steps), change_statement(KIND, made.id)]


@lru_cache(1_024)  # most clients and people have the same few, which memory then has once
def _names(encoded: str) -> tuple[str, ...]:
    return msgspec.json.decode(encoded, type=tuple[str, ...])


def _encoded(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _row(made: StoredAuthorization) -> dict[str, Any]:
    row = msgspec.structs.asdict(made)
    for name in ("user", "client", "name", "verified", "view"):
        row[name] = storable(row[name])
    lists = {name: _encoded(row[name]) for name in ("places", "scopes")}
    return row | lists | {"proven": int(made.proven)}


def _authorization(row: Row[Any]) -> StoredAuthorization:
    fields = dict(row._mapping)
    for name in ("places", "scopes"):
        fields[name] = _names(fields[name])
    fields["proven"] = bool(fields["proven"])
    return StoredAuthorization(**fields)
