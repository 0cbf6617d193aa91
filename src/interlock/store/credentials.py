"""The credentials of users for servers, in a table that contains only encrypted values.

1. A value is encrypted with a key derived from the gateway's key. The stored value begins with
   the id of the gateway's key.
2. Tenant, user, server and name are authenticated with the value. So a row that was copied to
   another user, server or name cannot be decrypted.
3. Each change of a credential is recorded in `changes`, except the refresh of a login, which
   stays the same login.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, Row, and_, insert, select, update

from interlock.auth.gateway_key import GatewayKey
from interlock.auth.stored_key import TENANT
from interlock.errors import MissingExtra, StoreCorrupt, StoreError
from interlock.store.database import tables
from interlock.store.database.changes import ChangeReader, change_statement, note_change
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.key_loading import load_key
from interlock.store.database.key_owner import open_owned
from interlock.store.database.on_conflict import KEEP_EXISTING, OnConflict
from interlock.store.database.recorded import Record, claim_of, make_change
from interlock.store.database.rows import storable
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

LOGIN = "login"  # the name of a user's login to a server, reserved: no value can have it
CHANGES: Final = "credentials"
EXPIRING = 24 * 3600 * 1_000_000  # microseconds; a login with less time left is "expiring"
LEASE = 60 * 1_000_000  # microseconds until a lease expires, such as that of a killed process
MAX_VALUE = 16 * 1024  # bytes of one value

Kind = Literal["value", "oauth"]
State = Literal["ok", "expiring", "needs_login", "revoked"]

_NONCE_BYTES = 12
_encode = msgspec.json.Encoder().encode
_REPLACE = OnConflict(
    '(tenant, "user", server, name) DO UPDATE SET kind = excluded.kind, sealed = excluded.sealed,'
    " state = excluded.state, expires = excluded.expires, updated = excluded.updated,"
    " leased_by = excluded.leased_by, leased_until = excluded.leased_until"
)


class Place(Struct, frozen=True, array_like=True):
    """The primary key of a stored credential: tenant, user, server and name.

    Attributes:
        user: The id of the principal, such as "user:anna".
        server: The server's name, as in tool addresses.
        name: The NAME in `${user:NAME}`, or `LOGIN`.
        tenant: The user's tenant.
    """

    user: str
    server: str
    name: str
    tenant: str = TENANT


class Credential(Struct, frozen=True):
    """A credential's metadata, without its value. Times are microseconds since 1970, UTC.

    Attributes:
        place: The key of the credential.
        kind: Whether it is a value that the user or the operator has set, or an OAuth login.
        recorded: The credential's state when it was last written.
        expires: The time at which a login without refresh token expires; None for never.
        updated: The time of the last write.
    """

    place: Place
    kind: Kind
    recorded: State
    expires: int | None
    updated: int

    def state(self, now: int) -> State:
        if self.recorded != "ok" or self.expires is None:
            return self.recorded
        if self.expires <= now:
            return "needs_login"
        return "expiring" if self.expires - now < EXPIRING else "ok"

    def as_json(self, now: int) -> JsonObject:
        shown = {
            "user": self.place.user,
            "server": self.place.server,
            "name": self.place.name,
            "kind": self.kind,
            "state": self.state(now),
            "updated": rfc3339(self.updated),
        }
        return shown if self.expires is None else shown | {"expires": rfc3339(self.expires)}


_Credentials: TypeAlias = list[Credential]


class CredentialStore:
    """A store of credentials in one database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database, key: GatewayKey) -> None:
        self._database = database
        self._seal = CredentialSeal(key)
        self._changes = ChangeReader(CHANGES)

    @classmethod
    @asynccontextmanager
    async def open(cls, location: str | Path | None = None) -> AsyncIterator[CredentialStore]:
        """Open a database like `ConversationStore.open`, and the gateway's key beside it."""
        key = await load_key(location)
        database = await open_owned(location, key)
        try:
            yield cls(database, key)
        finally:
            await database.close()

    # Lists

    async def list(self, *, user: str = "", tenant: str = TENANT) -> _Credentials:
        """Return the credentials of one user or of all users, ordered by user, server and name."""
        columns = tables.credentials.c
        where = [columns.tenant == tenant, *([columns.user == user] if user else [])]
        query = select(tables.credentials).where(*where)
        rows = await self._rows(query.order_by(columns.user, columns.server, columns.name))
        return [_credential(row) for row in rows]

    async def find(self, place: Place) -> Credential | None:
        rows = await self._rows(select(tables.credentials).where(_at(place)))
        return _credential(rows[0]) if rows else None

    async def users_of(self, server: str) -> Sequence[tuple[str, str]]:
        """Return tenant and user of a server's ten most recently updated, usable credentials."""
        columns = tables.credentials.c
        query = select(tables.credentials).where(columns.server == server, columns.state == "ok")
        now, found = now_micros(), dict[tuple[str, str], None]()
        for row in await self._rows(query.order_by(columns.updated.desc()).limit(100)):
            if _credential(row).state(now) in ("ok", "expiring"):
                found[row.tenant, row.user] = None
        return [*found][:10]

    # Values

    async def values(self, user: str, server: str, *, tenant: str = TENANT) -> dict[str, str]:
        """Return a user's values for a server, keyed by name.

        Raises:
            StoreCorrupt: A value cannot be decrypted.
        """
        columns = tables.credentials.c
        query = select(tables.credentials).where(
            columns.tenant == tenant,
            columns.user == user,
            columns.server == server,
            columns.kind == "value",
            columns.state == "ok",
        )
        return {
            row.name: self._seal.open(row.sealed, _place(row)).decode()
            for row in await self._rows(query)
        }

    async def set(self, place: Place, value: str, *, record: Record | None = None) -> None:
        """Store a value, replacing any earlier value.

        Args:
            place: The primary key of the credential.
            value: The secret value.
            record: Writes the change together with its audit record; it is called with `place`.

        Raises:
            StoreError: The name is reserved, or the value is empty or too long.
        """
        if place.name == LOGIN:
            raise StoreError(f"{LOGIN!r} is reserved for OAuth logins and takes no value")
        _check(place)
        size = len(value.encode(errors="surrogatepass"))
        if not size or size > MAX_VALUE or storable(value) != value:
            raise StoreError(
                f"the value of {place.name!r} must be text of 1 to {MAX_VALUE:,} bytes "
                f"({size:,} were given)"
            )
        row = _row(place, "value", self._seal.close(value.encode(), place), "ok", now_micros())
        stored = insert(tables.credentials).values(row).ext(_REPLACE)
        claim = claim_of(stored, change_statement(CHANGES, key_of_change(place)))
        await make_change(self._database, claim, record, place)

    async def revoke(self, place: Place, *, record: Record | None = None) -> bool:
        """Delete a value or a login; return whether it existed. Its row stays, as "revoked"."""
        revoked = (
            update(tables.credentials)
            .where(_at(place), tables.credentials.c.state != "revoked")
            .values(sealed=b"", state="revoked", expires=None, updated=now_micros(), leased_by="")
        )
        claim = claim_of(revoked, change_statement(CHANGES, key_of_change(place)))
        return await make_change(self._database, claim, record, place)

    # Logins

    async def read(self, place: Place) -> bytes | None:
        """Return the stored content of a login; None if it does not exist.

        Raises:
            StoreCorrupt: The content cannot be decrypted.
        """
        rows = await self._rows(select(tables.credentials).where(_at(place)))
        if not rows or not rows[0].sealed:
            return None
        return self._seal.open(rows[0].sealed, place)

    async def write(
        self, place: Place, content: bytes, state: State, expires: float | None, holder: str
    ) -> None:
        """Store a login.

        Args:
            place: The primary key of the login.
            content: The encoded login.
            state: The state of the login.
            expires: The time of expiry in seconds since 1970; None if the login can be refreshed.
            holder: The process that holds the lease of the login.

        Raises:
            StoreError: The lease was lost: the login was deleted, or the lease expired.
        """
        values = {
            "kind": "oauth",
            "sealed": self._seal.close(content, place),
            "state": state,
            "expires": None if expires is None else int(expires * 1_000_000),
            "updated": now_micros(),
        }

        async def work(connection: AsyncConnection) -> bool:
            where = and_(_at(place), tables.credentials.c.leased_by == holder)
            changed = await connection.execute(
                update(tables.credentials).where(where).values(**values)
            )
            return bool(changed.rowcount)

        if not await self._database.write(work):
            raise StoreError(
                f"the login of {place.user} to server {place.server!r} was deleted or replaced "
                "meanwhile; log in again"
            )

    async def mark(self, place: Place, state: State) -> None:
        at = now_micros()

        async def work(connection: AsyncConnection) -> None:
            where = and_(_at(place), tables.credentials.c.state != "revoked")
            await connection.execute(
                update(tables.credentials).where(where).values(state=state, updated=at)
            )

        await self._database.write(work)

    async def note(self, place: Place) -> None:
        """Record that a new login was stored, so that running gateways use it."""
        await self._database.write(
            lambda connection: note_change(connection, CHANGES, key_of_change(place))
        )

    async def lease(self, place: Place, holder: str) -> bool:
        """Lease a login, so that only one process refreshes it; return False if another holds it.

        Args:
            place: The primary key of the login, which need not exist.
            holder: The name of the process that takes the lease.
        """
        columns = tables.credentials.c

        async def work(connection: AsyncConnection) -> bool:
            now = await connection.now()  # the clocks of several gateways may differ
            leased = {"leased_by": holder, "leased_until": now + LEASE}
            changed = await connection.execute(
                update(tables.credentials)
                .where(_at(place), columns.leased_until <= now)
                .values(**leased)
            )
            if changed.rowcount:
                return True
            row = _row(place, "oauth", b"", "needs_login", now) | leased
            # Another process may insert the same row at the same time.
            added = insert(tables.credentials).values(row).ext(KEEP_EXISTING)
            return bool((await connection.execute(added)).rowcount)

        return await self._database.write(work)

    async def release(self, place: Place, holder: str) -> None:
        async def work(connection: AsyncConnection) -> None:
            where = and_(_at(place), tables.credentials.c.leased_by == holder)
            await connection.execute(
                update(tables.credentials).where(where).values(leased_by="", leased_until=0)
            )

        await self._database.write(work)

    # Changes

    async def changed(self) -> Collection[Place]:
        """Return the users and servers whose credentials have changed since the last call.

        The returned places have no credential name.
        """

        async def work(connection: AsyncConnection) -> set[str]:
            return await self._changes.read(connection)

        return [msgspec.json.decode(key, type=Place) for key in await self._database.read(work)]

    # The table

    async def _rows(self, query: Any) -> Sequence[Row[Any]]:
        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(query)).all()

        return await self._database.read(work)


def _at(place: Place) -> ColumnElement[bool]:
    columns = tables.credentials.c
    return and_(
        columns.tenant == place.tenant,
        columns.user == place.user,
        columns.server == place.server,
        columns.name == place.name,
    )


def _check(place: Place) -> None:
    for what, text in (("user", place.user), ("server", place.server), ("name", place.name)):
        if not text or not text.isprintable() or storable(text) != text:
            raise StoreError(f"{text!r} is not a valid {what} of a credential")


def _row(place: Place, kind: Kind, sealed: bytes, state: State, now: int) -> dict[str, Any]:
    return {
        "tenant": place.tenant,
        "user": place.user,
        "server": place.server,
        "name": place.name,
        "kind": kind,
        "sealed": sealed,
        "state": state,
        "expires": None,
        "updated": now,
        "leased_by": "",
        "leased_until": 0,
    }


def _place(row: Row[Any]) -> Place:
    return Place(row.user, row.server, row.name, row.tenant)


def _credential(row: Row[Any]) -> Credential:
    return Credential(_place(row), row.kind, row.state, row.expires, row.updated)


def key_of_change(place: Place) -> str:
    """Return the key of a row in `changes` that announces a change of a credential."""
    return _encode(Place(place.user, place.server, "", place.tenant)).decode()


class CredentialSeal:
    """Encryption of values with AES-256-GCM, for their places, with a gateway's key."""

    def __init__(self, key: GatewayKey) -> None:
        self._id = key.id.encode()
        self._key = key.derive("credentials")
        self._made: AESGCM | None = None

    def close(self, value: bytes, place: Place) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return self._id + nonce + self._cipher.encrypt(nonce, value, _encode(place))

    def open(self, sealed: bytes, place: Place) -> bytes:
        """Return the value that `close` has encrypted.

        Raises:
            StoreCorrupt: It was encrypted with another key, or was changed.
        """
        from cryptography.exceptions import InvalidTag

        what = f"the credential {place.name!r} of {place.user} for server {place.server!r}"
        id, rest = sealed[: len(self._id)], sealed[len(self._id) :]
        if id != self._id:
            raise StoreCorrupt(f"{what} was sealed with another gateway key; set it again")
        try:
            return self._cipher.decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], _encode(place))
        except (InvalidTag, ValueError):
            raise StoreCorrupt(f"{what} cannot be decrypted; set it again") from None

    @property
    def _cipher(self) -> AESGCM:
        if self._made is None:
            try:
                from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            except ModuleNotFoundError as error:
                raise MissingExtra("storing credentials of users", "serve") from error
            self._made = AESGCM(self._key)
        return self._made
