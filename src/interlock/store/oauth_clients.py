"""A store of what operators decide about clients of the front door: created, blocked, allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from sqlalchemy import Row, delete, insert, select

from interlock.store.database.changes import change_statement
from interlock.store.database.claims import Claim, Statement
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.recorded import Record, make_change, statement_of
from interlock.store.database.rows import storable
from interlock.store.database.tables import oauth_clients
from interlock.text.timestamps import rfc3339
from interlock.types import JsonObject

KIND: Final = "clients"  # the kind of rows in `changes`

ClientState = Literal["created", "blocked", "allowed"]
_Clients: TypeAlias = list["StoredClient"]


class StoredClient(Struct, frozen=True, kw_only=True):
    """An operator's decision about a client.

    Attributes:
        id: The client's id; or a host, "localhost" or "SCHEME:" for all clients of that place.
        name: The client's name for display.
        state: "created" for a client that exists by this row only.
        redirects: The redirect URIs of a created client; () for all others.
        secret_hash: SHA-256 of the secret of a created client; b"" if it has none.
        jwks_url: The URL of the public keys of a created client; "" if it has none.
        created_by: The operator.
        created: When the operator decided, in microseconds since 1970.
    """

    id: str
    name: str = ""
    state: ClientState
    redirects: tuple[str, ...] = ()
    secret_hash: bytes = b""
    jwks_url: str = ""
    created_by: str = ""
    created: int = 0

    def as_json(self) -> JsonObject:
        return {
            "client": self.id,
            "name": self.name,
            "state": self.state,
            "redirects": list(self.redirects),
            "created": rfc3339(self.created),
            "createdBy": self.created_by,
        }


class OAuthClientStore:
    """The decisions in one database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> _Clients:
        query = select(oauth_clients).order_by(oauth_clients.c.created)

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(query)).all()

        return [_client(row) for row in await self._database.read(work)]

    async def put(self, client: StoredClient, *, record: Record | None = None) -> None:
        """Store a decision in place of an earlier one; every gateway follows."""
        row = msgspec.structs.asdict(client) | {
            "id": storable(client.id),
            "name": storable(client.name),
            "redirects": msgspec.json.encode(client.redirects).decode(),
        }
        earlier = delete(oauth_clients).where(oauth_clients.c.id == row["id"])
        steps = [statement_of(each) for each in (earlier, insert(oauth_clients).values(row))]
        then: list[Statement] = [(sql, [values]) for sql, values in steps]
        sql, rows = change_statement(KIND, client.id)
        await make_change(self._database, Claim(sql, tuple(rows[0]), then), record, client)


def _client(row: Row[Any]) -> StoredClient:
    fields = dict(row._mapping)
    fields["redirects"] = msgspec.json.decode(fields["redirects"], type=tuple[str, ...])
    fields["secret_hash"] = fields["secret_hash"] or b""
    return StoredClient(**fields)
