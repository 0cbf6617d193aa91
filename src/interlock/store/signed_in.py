"""A store of what issuers have last said about people, with the tokens to ask them again.

The issuer's refresh token is sealed. Only one process asks at a time: it takes a lease, as some
issuers accept each refresh token once.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, delete, insert, select, update

from interlock.auth.gateway_key import GatewayKey
from interlock.auth.stored_authorization import StoredPerson
from interlock.auth.stored_key import TENANT
from interlock.store.database.changes import note_change
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.on_conflict import OnConflict
from interlock.store.database.rows import storable
from interlock.store.database.tables import authorizations, page_sessions, people
from interlock.types import JsonObject

LEASE = 30 * 1_000_000  # microseconds
SEALED_FOR = "issuer's refresh token"
_COLUMNS = people.c
_RENEWED = ("scopes", "groups", "claims", "sealed", "checked", "leased_by", "leased_until")
_RENEWAL = ", ".join(f"{each} = excluded.{each}" for each in _RENEWED)
_RENEW = OnConflict(f'(tenant, "user") DO UPDATE SET {_RENEWAL}')
_RENEW_UNSIGNED = OnConflict(
    f'(tenant, "user") DO UPDATE SET {_RENEWAL} WHERE people.sealed IS NULL'
)


class SignedInStore:
    """The people in one database whom issuers have described. Methods may raise a `StoreError`.

    Args:
        secret: The gateway's key, which seals the refresh tokens.
    """

    def __init__(self, database: Database, secret: GatewayKey) -> None:
        self._database = database
        self._secret = secret

    async def get(self, user: str, tenant: str = TENANT) -> tuple[StoredPerson, str] | None:
        """Return a person, and the issuer's refresh token; "" for none."""
        query = select(people).where(*_is(user, tenant))

        async def work(connection: AsyncConnection) -> Row[Any] | None:
            return (await connection.execute(query)).one_or_none()

        row = await self._database.read(work)
        if row is None:
            return None
        sealed = row.sealed or b""
        token = (sealed and self._secret.unseal(SEALED_FOR, sealed, bound_to(user, tenant))) or b""
        return _person(row, is_asked=bool(token)), token.decode()

    async def person(self, user: str, tenant: str = TENANT) -> StoredPerson | None:
        """Return what is stored of a person; None if nothing is."""
        found = await self.get(user, tenant)
        return None if found is None else found[0]

    async def put(
        self, person: StoredPerson, refresh_token: str = "", *, has_signed_in: bool = True
    ) -> None:
        """Store what an issuer says about a person; every gateway follows.

        Args:
            refresh_token: With which the issuer can be asked again; "" for none.
            has_signed_in: Whether the person has signed in, and not only a program for the person.
                A program's statement may say less, and so it changes nothing about a person whom
                the issuer can be asked about.
        """
        row = row_of(person) | {"sealed": self._sealed(person, refresh_token)}
        renew = _RENEW if has_signed_in else _RENEW_UNSIGNED

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(insert(people).values(row).ext(renew))
            await _note(connection, person.user, person.tenant)

        await self._database.write(work)

    # What follows changes nothing about a person who has signed in again since `before` was read.

    async def renew(self, before: StoredPerson, person: StoredPerson, refresh_token: str) -> None:
        """Store what an issuer says again about a person; every gateway follows."""
        row = row_of(person) | {"sealed": self._sealed(person, refresh_token)}
        changed = update(people).where(*_is_same(before)).values(row)

        async def work(connection: AsyncConnection) -> None:
            if (await connection.execute(changed)).rowcount:
                await _note(connection, person.user, person.tenant)

        await self._database.write(work)

    async def forget(self, before: StoredPerson) -> bool:
        """Delete a person and the person's sessions of the pages; every gateway follows."""
        user, tenant, sessions = before.user, before.tenant, page_sessions.c
        is_session = sessions.user == storable(user), sessions.tenant == tenant

        async def work(connection: AsyncConnection) -> bool:
            if not (await connection.execute(delete(people).where(*_is_same(before)))).rowcount:
                return False
            await connection.execute(delete(page_sessions).where(*is_session))
            await _note(connection, user, tenant)
            return True

        return await self._database.write(work)

    async def keep_token(self, before: StoredPerson, refresh_token: str) -> None:
        """Store a refresh token that the issuer has sent in place of the last one."""
        sealed = self._sealed(before, refresh_token)
        changed = update(people).where(*_is_same(before)).values(sealed=sealed)
        await self._database.write(lambda connection: connection.execute(changed))

    def _sealed(self, person: StoredPerson, refresh_token: str) -> bytes | None:
        if not refresh_token:
            return None
        place = bound_to(person.user, person.tenant)
        return self._secret.seal(SEALED_FOR, refresh_token.encode(), place)

    async def lease(self, user: str, tenant: str, process: str, now: int) -> bool:
        """Take the lease to ask about a person; return False while another process has it."""
        free = (*_is(user, tenant), _COLUMNS.leased_until < now)
        taken = update(people).where(*free).values(leased_by=process, leased_until=now + LEASE)
        done = await self._database.write(lambda connection: connection.execute(taken))
        return bool(done.rowcount)


def row_of(person: StoredPerson) -> dict[str, Any]:
    """Return the row of a person without a refresh token and without a lease."""
    row = msgspec.structs.asdict(person) | {"user": storable(person.user)}
    del row["is_asked"]
    lists = {
        name: msgspec.json.encode(row[name]).decode() for name in ("scopes", "groups", "claims")
    }
    return row | lists | {"leased_by": "", "leased_until": 0}


async def _note(connection: AsyncConnection, user: str, tenant: str) -> None:
    """Note that a person has changed, for each authorization that has not ended."""
    mine = select(authorizations.c.id).where(
        authorizations.c.user == storable(user),
        authorizations.c.tenant == tenant,
        authorizations.c.ended.is_(None),
    )
    for each in (await connection.execute(mine)).all():
        await note_change(connection, "authorizations", each.id)


def _is(user: str, tenant: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return _COLUMNS.user == storable(user), _COLUMNS.tenant == tenant


def _is_same(before: StoredPerson) -> tuple[ColumnElement[bool], ...]:
    return (*_is(before.user, before.tenant), _COLUMNS.checked == before.checked)


def bound_to(user: str, tenant: str) -> bytes:
    """Return what an issuer's refresh token is encrypted for."""
    return f"{tenant}\n{storable(user)}".encode()


def _person(row: Row[Any], *, is_asked: bool) -> StoredPerson:
    lists = {
        name: msgspec.json.decode(getattr(row, name), type=tuple[str, ...])
        for name in ("scopes", "groups")
    }
    return StoredPerson(
        user=row.user,
        claims=msgspec.json.decode(row.claims, type=JsonObject),
        checked=row.checked,
        tenant=row.tenant,
        is_asked=is_asked,
        **lists,
    )
