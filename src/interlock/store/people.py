"""The erasure of what belongs to one person, in one transaction.

Deleted: conversations with their calls and files, accepted apps, credentials, kept results,
approvals of their calls, sessions and login codes, and plugin installations. The person's API keys
are revoked and stay without their name, as the audit records name their ids. Where the person
decided something for all users, such as a pin, the decision stays under a pseudonym. The audit
records are not part of the transaction: see `audit.forgetting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Delete,
    Table,
    Update,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)

from interlock.store.credentials import Place, key_of_change
from interlock.store.database.changes import Kind, change_statement
from interlock.store.database.claims import Claim, Statement
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.recorded import Record, make_change, statement_of
from interlock.store.database.rows import storable
from interlock.store.database.tables import (
    approvals,
    authorization_codes,
    authorizations,
    chat_apps,
    chat_calls,
    chat_file_uses,
    chat_files,
    conversations,
    credentials,
    kept_results,
    keys,
    login_codes,
    messages,
    oauth_clients,
    page_sessions,
    people,
    pins,
    plugin_installations,
    stored_bytes,
)
from interlock.text.timestamps import now_micros

# The tables whose rows are erased, by the name that people read, with the column of the person.
_OWNED: dict[str, tuple[Table, ColumnElement[str]]] = {
    "conversations": (conversations, conversations.c.owner),
    "files": (chat_files, chat_files.c.owner),
    "accepted apps": (chat_apps, chat_apps.c.owner),
    "credentials": (credentials, credentials.c.user),
    "kept results": (kept_results, kept_results.c.user),
    "approvals": (approvals, approvals.c.user),
    "sessions": (page_sessions, page_sessions.c.user),
    "login codes": (login_codes, login_codes.c.user),
    "plugins": (plugin_installations, plugin_installations.c.user),
    "authorizations": (authorizations, authorizations.c.user),
    "logins": (people, people.c.user),
}
_DECIDED = (
    (keys, keys.c.created_by),
    (pins, pins.c.decided_by),
    (approvals, approvals.c.decided_by),
    (plugin_installations, plugin_installations.c.by),
    (oauth_clients, oauth_clients.c.created_by),
)


class PersonalData(Struct, frozen=True):
    """The rows of one person in a database.

    Attributes:
        counts: The number of rows by the name of their kind; "keys" are those not yet revoked.
        files: The names of the kept results' files.
        changes: The kinds and keys of the changes that running gateways must notice.
    """

    counts: dict[str, int]
    files: tuple[str, ...]
    changes: tuple[tuple[Kind, str], ...]


class PeopleStore:
    """The data of people in one database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, principal: str) -> PersonalData:
        """Return the data of a person in the database."""
        person = storable(principal)

        async def work(connection: AsyncConnection) -> PersonalData:
            async def rows(table: Table) -> Sequence[Any]:
                is_of = _is_key_of(person) if table is keys else table.c.user == person
                return (await connection.execute(select(table).where(is_of))).all()

            counts = {}
            for name, (table, owner) in _OWNED.items():
                query = select(func.count()).select_from(table).where(owner == person)
                counts[name] = int(await connection.scalar(query))
            owned = await rows(keys)
            counts["keys"] = sum(each.revoked is None for each in owned)
            changes: list[tuple[Kind, str]] = [("keys", each.id) for each in owned]
            changes += [("approvals", each.id) for each in await rows(approvals)]
            changes += [("plugins", each.plugin) for each in await rows(plugin_installations)]
            changes += [("authorizations", each.id) for each in await rows(authorizations)]
            for each in await rows(credentials):
                place = Place(each.user, each.server, each.name, each.tenant)
                changes.append(("credentials", key_of_change(place)))
            files = tuple(each.file for each in await rows(kept_results))
            return PersonalData(counts, files, tuple(changes))

        return await self._database.read(work)

    async def forget(
        self, principal: str, found: PersonalData, pseudonym: str, *, record: Record | None = None
    ) -> None:
        """Erase a person's rows and revoke their keys; running gateways follow.

        Args:
            principal: The person's id, such as "user:anna".
            found: The result of `find`.
            pseudonym: The name that replaces the person's; see `audit.names`.
            record: Writes the change with its audit record.
        """
        person = storable(principal)
        steps = [statement_of(each) for each in _steps(person, pseudonym, now_micros())]
        then: list[Statement] = [(sql, [row]) for sql, row in steps]
        # The claim must change one row, which a person without rows does not have.
        sql, rows = change_statement("people", pseudonym)
        then += [change_statement(kind, key) for kind, key in found.changes]
        await make_change(self._database, Claim(sql, tuple(rows[0]), then), record)


def _is_key_of(person: str) -> ColumnElement[bool]:
    # Keys contain the name of their user, and all other tables the id of the principal.
    return literal("user:") + keys.c.user == person


def _steps(person: str, pseudonym: str, now: int) -> Sequence[Update | Delete]:
    mine = select(conversations.c.id).where(conversations.c.owner == person)
    parts = [delete(t).where(t.c.conversation_id.in_(mine)) for t in (chat_calls, messages)]
    files = select(chat_files.c.id).where(chat_files.c.owner == person)
    uses = chat_file_uses.c
    user = f'"user":{msgspec.json.encode(person).decode()}'
    is_for = authorization_codes.c.body.contains(user, autoescape=True)
    results = select(func.coalesce(func.sum(kept_results.c.bytes), 0)).where(
        kept_results.c.user == person
    )
    is_sum = (stored_bytes.c.kind == "results", stored_bytes.c.owner == "")
    left = stored_bytes.c.bytes - results.scalar_subquery()
    revoked = func.coalesce(keys.c.revoked, now)
    return [
        update(keys).where(_is_key_of(person)).values(user=pseudonym, name="", revoked=revoked),
        *parts,
        delete(chat_file_uses).where(or_(uses.conversation_id.in_(mine), uses.file_id.in_(files))),
        update(stored_bytes).where(*is_sum).values(bytes=left),
        *(delete(table).where(owner == person) for table, owner in _OWNED.values()),
        delete(authorization_codes).where(is_for),
        delete(stored_bytes).where(stored_bytes.c.owner == person),
        *(update(table).where(by == person).values({by.key: pseudonym}) for table, by in _DECIDED),
    ]
