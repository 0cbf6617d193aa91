"""The encryption of a database's content with another key of the gateway.

Content that cannot be decrypted stays as it is, so that it is reported when it is used. Tokens and
registrations of OAuth clients are made with the key, so every authorization ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Row, Select, Table, and_, delete, insert, select, tuple_, update

from interlock import durable
from interlock.auth.gateway_key import GatewayKey
from interlock.errors import StoreCorrupt, StoreError
from interlock.store.approvals import SEALED_FOR, Binding, binding_hash
from interlock.store.approvals import bound_to as approval_place
from interlock.store.credentials import CredentialSeal, Place
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.tables import (
    approvals,
    authorizations,
    credentials,
    kept_chunks,
    kept_results,
    people,
)
from interlock.store.kept_results import CHUNK, FOLDER, file_of
from interlock.store.kept_results import bound_to as result_place
from interlock.store.signed_in import SEALED_FOR as TOKENS_OF_ISSUERS
from interlock.store.signed_in import bound_to as person_place
from interlock.text.timestamps import now_micros
from interlock.types import JsonObject

HashOf = Callable[[GatewayKey, JsonObject], str]  # returns the hash of a call's arguments
_AT_ONCE = 100  # rows that are read at once


class Resealed(Struct):
    """The counts of what was encrypted again.

    Attributes:
        credentials, approvals, results, people: The numbers of rows.
        ended: The number of authorizations that ended, because the old key made their tokens.
        unreadable: The number of rows that could not be decrypted, and stay as they are.
        files: The files of kept results that are not needed once the change is made.
    """

    credentials: int = 0
    approvals: int = 0
    results: int = 0
    people: int = 0
    ended: int = 0
    unreadable: int = 0
    files: list[Path] = []


class Resealing:
    """Encrypts a database's content again, in one transaction.

    Args:
        connection: The transaction.
        old: The key that the content is encrypted with.
        new: The key to encrypt it with.
        folder: The folder with the files of kept results; None if the database has their bytes.
        hash_of: Returns the hash of arguments, which approvals are found by.
        done: Counts what was encrypted again.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        old: GatewayKey,
        new: GatewayKey,
        folder: Path | None,
        hash_of: HashOf,
        done: Resealed,
    ) -> None:
        self._connection = connection
        self._old = old
        self._new = new
        self._folder = folder
        self._hash_of = hash_of
        self._done = done

    async def run(self) -> None:
        """Encrypt everything again.

        Raises:
            StoreError: A file cannot be read or written.
        """
        await self._each(credentials, self._credential)
        await self._each(approvals, self._approval)
        await self._each(kept_results, self._result)
        await self._each(people, self._person)
        active = update(authorizations).where(authorizations.c.ended.is_(None))
        ended = active.values(ended=now_micros(), reason="key_replaced")
        self._done.ended = (await self._connection.execute(ended)).rowcount

    async def _each(self, table: Table, reseal: Callable[[Row[Any]], Any]) -> None:
        """Call `reseal` for each row of a table, in the order of its primary key."""
        keys = list(table.primary_key.columns)
        query: Select[Any] = select(table).order_by(*keys).limit(_AT_ONCE)
        rows = (await self._connection.execute(query)).all()
        while rows:
            for row in rows:
                await reseal(row)
            last = tuple_(*(rows[-1]._mapping[each] for each in keys))
            rows = (await self._connection.execute(query.where(tuple_(*keys) > last))).all()

    async def _change(self, table: Table, row: Row[Any], **values: object) -> None:
        keys = table.primary_key.columns
        where = and_(*(each == row._mapping[each] for each in keys))
        await self._connection.execute(update(table).where(where).values(**values))

    async def _credential(self, row: Row[Any]) -> None:
        if not row.sealed:  # revoked
            return
        place = Place(row.user, row.server, row.name, row.tenant)
        try:
            value = CredentialSeal(self._old).open(row.sealed, place)
        except StoreCorrupt:
            self._done.unreadable += 1
            return
        await self._change(credentials, row, sealed=CredentialSeal(self._new).close(value, place))
        self._done.credentials += 1

    async def _approval(self, row: Row[Any]) -> None:
        place = approval_place(row.id)
        encoded = self._old.unseal(SEALED_FOR, row.arguments, place)
        if encoded is None:
            self._done.unreadable += 1
            return
        hash = self._hash_of(self._new, msgspec.json.decode(encoded))
        names = Binding.__struct_fields__
        binding = Binding(**{each: getattr(row, each) for each in names} | {"hash": hash})
        await self._change(
            *(approvals, row),
            arguments=self._new.seal(SEALED_FOR, encoded, place),
            hash=hash,
            binding=binding_hash(binding, self._new),
        )
        self._done.approvals += 1

    async def _person(self, row: Row[Any]) -> None:
        if row.sealed is None:
            return
        place = person_place(row.user, row.tenant)
        token = self._old.unseal(TOKENS_OF_ISSUERS, row.sealed, place)
        if token is None:
            self._done.unreadable += 1
            return
        await self._change(people, row, sealed=self._new.seal(TOKENS_OF_ISSUERS, token, place))
        self._done.people += 1

    async def _result(self, row: Row[Any]) -> None:
        if self._folder is None:
            await self._chunks(row)
            return
        path = file_of(self._folder, row.file)
        # Both files exist until the change is made. If the process is killed, the next start of a
        # gateway deletes the one that has no row.
        name = f"{row.id}-{self._new.id}"
        try:
            sealed = result_under(self._old, self._new, path.read_bytes(), row._mapping, name)
            if sealed is not None:
                durable.replace(self._folder / name, sealed)
        except FileNotFoundError:
            return
        except (OSError, durable.NotSynced) as error:
            raise StoreError(f"{path} cannot be encrypted again: {error}") from None
        if sealed is None:
            self._done.unreadable += 1
            return
        await self._change(kept_results, row, file=name)
        self._done.files.append(path)
        self._done.results += 1

    async def _chunks(self, row: Row[Any]) -> None:
        columns = kept_chunks.c
        query = select(columns.content).where(columns.id == row.id).order_by(columns.number)
        content = b"".join(each for (each,) in await self._connection.execute(query))
        sealed = result_under(self._old, self._new, content, row._mapping, row.file)
        if sealed is None:
            self._done.unreadable += 1
            return
        await self._connection.execute(delete(kept_chunks).where(columns.id == row.id))
        parts = [
            {"id": row.id, "number": number, "content": sealed[begin : begin + CHUNK]}
            for number, begin in enumerate(range(0, len(sealed), CHUNK))
        ]
        await self._connection.execute(insert(kept_chunks), parts)
        self._done.results += 1


def result_under(
    old: GatewayKey, new: GatewayKey, sealed: bytes, row: Mapping[Any, Any], name: str
) -> bytes | None:
    """Return a kept result, encrypted with another key and for a file of another name.

    Args:
        old: The key that it is encrypted with.
        new: The key to encrypt it with.
        sealed: The encrypted result.
        row: The row of the result.
        name: The new name of its file.

    Returns:
        The encrypted result; None if it cannot be decrypted.
    """
    owner = row["tenant"], row["user"]
    content = old.unseal(FOLDER, sealed, result_place(row["file"], owner))
    return None if content is None else new.seal(FOLDER, content, result_place(name, owner))
