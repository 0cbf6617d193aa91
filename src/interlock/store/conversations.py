"""Conversations: made, added to, read back, continued after a crash."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from sqlalchemy import Row, and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from interlock.errors import UnknownConversation
from interlock.messages import Message, interrupted
from interlock.store import tables
from interlock.store.database import Database, open_database
from interlock.store.repair import closed, open_calls
from interlock.store.rows import message as message_of
from interlock.store.rows import readable, row

# No letters that look alike, and none that a shell or a URL reads in its own way.
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 12  # 59 bits


class Conversation(Struct, frozen=True):
    """A conversation without its messages."""

    id: str
    title: str
    model: str  # as in `--model`, or ""
    created: datetime  # UTC
    updated: datetime  # UTC, of the last message or change
    message_count: int = 0


# `Store.list` hides the builtin in the annotations that follow it.
_Conversations: TypeAlias = list[Conversation]
_Messages: TypeAlias = list[Message]
_Rows: TypeAlias = list[dict[str, str | None]]


class Store:
    """The conversations of one database, which other processes may use at the same time.

    Everything that was acknowledged survives a crash. Every method raises `StoreError`: see the
    tree in `interlock.errors`. It comes at once from a PostgreSQL server that has ended, after 6
    seconds from one that hangs (11 when all 15 connections wait for it already); a write is then
    there as a whole or not at all. When the server is back, the store can be used as it is.
    Methods may be called from any task of the loop that opened it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    @asynccontextmanager
    async def open(cls, place: str | Path | None = None) -> AsyncIterator[Store]:
        """Open a database, create it if needed, and bring it to this program's version.

        Args:
            place: A path or a postgresql:// URL. None: INTERLOCK_DATABASE, else
                `conversations.db` in the user's data folder.

        Raises:
            StoreError: It cannot be used; a read-only one can be opened and read.
            MissingExtra: A package for this kind of database is not installed.
        """
        database = await open_database(place)
        try:
            yield cls(database)
        finally:
            await database.close()

    @property
    def place(self) -> str:
        """The path, or server and database, without user and password."""
        return self._database.place

    # Conversations

    async def create(self, title: str = "", model: str = "") -> Conversation:
        """Start an empty conversation. Characters no database can hold become U+FFFD."""
        id = "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
        now = datetime.now(UTC)
        conversation = Conversation(id, readable(title), readable(model), now, now)

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(
                insert(tables.conversations).values(
                    id=id,
                    title=conversation.title,
                    model=conversation.model,
                    created=now,
                    updated=now,
                )
            )

        await self._database.write(work)
        return conversation

    async def resolve(self, prefix: str) -> Conversation:
        """Return the conversation with this id, or the only one whose id starts so.

        Raises:
            UnknownConversation: None, or several.
        """
        prefix = readable(prefix)
        ids = tables.conversations.c.id
        start = func.substr(ids, 1, len(prefix)) == prefix

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(_listed.where(start).order_by(ids).limit(6))).all()

        found = [_conversation(row) for row in await self._database.read(work)] if prefix else []
        if len(found) == 1 or (found and found[0].id == prefix):
            return found[0]
        if not found:
            raise UnknownConversation(
                f"no conversation {prefix!r}: `interlock conversations list` shows their ids"
            )
        ids_found = ", ".join(each.id for each in found[:5]) + (", …" if len(found) > 5 else "")
        raise UnknownConversation(f"{prefix!r} could be {ids_found}: give more of the id")

    async def list(self, limit: int = 50, before: Conversation | None = None) -> _Conversations:
        """Return conversations, last changed first.

        Args:
            limit: At most so many.
            before: The last one of the page before.
        """
        columns = tables.conversations.c
        page = _listed.order_by(columns.updated.desc(), columns.id.desc()).limit(limit)
        if before:
            same_time = and_(columns.updated == before.updated, columns.id < before.id)
            page = page.where(or_(columns.updated < before.updated, same_time))

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(page)).all()

        return [_conversation(row) for row in await self._database.read(work)]

    async def update(self, id: str, *, title: str | None = None, model: str | None = None) -> None:
        """Change the title, the model, or both; None leaves one as it is."""
        given = {"title": title, "model": model}
        values = {name: readable(value) for name, value in given.items() if value is not None}
        await self._database.write(lambda connection: _touch(connection, id, **values))

    async def delete(self, id: str) -> None:
        """Remove a conversation and its messages."""

        async def work(connection: AsyncConnection) -> None:
            table = tables.conversations
            done = await connection.execute(delete(table).where(table.c.id == readable(id)))
            if not done.rowcount:
                raise _unknown(id)

        await self._database.write(work)

    # Messages

    async def append(self, id: str, *messages: Message) -> None:
        """Add messages at the end, all or none, next to each other; durable when it returns.

        A cancelled call ends when it is certain which of the two it was.

        Raises:
            UnknownConversation: It has been deleted, or never was.
            StoreError: A tool call's input is not JSON, or the database fails.
        """
        rows = [row(message) for message in messages]
        if rows:
            await self._database.write(lambda connection: _append(connection, id, rows))

    async def messages(self, id: str) -> _Messages:
        """Return the messages exactly as they were added, valid for a provider or not."""
        return await self._database.read(lambda connection: _messages(connection, id))

    async def resume(self, id: str) -> _Messages:
        """Return the messages so that any provider takes them, to continue the conversation.

        Tool calls that a crash or an interrupt left without an answer are answered as
        interrupted; those at the end are kept, so that everybody sees what the model was told.
        Nobody else should be at work on the conversation: a result that comes after this is kept
        too, but not told to the model any more.
        """
        messages = await self.messages(id)
        if not open_calls(messages):
            return closed(messages)

        async def work(connection: AsyncConnection) -> _Messages:
            await _touch(connection, id)
            messages = await _messages(connection, id)
            answers = [interrupted(call) for call in open_calls(messages)]
            if answers:
                await _append(connection, id, [row(answer) for answer in answers])
            return closed([*messages, *answers])

        return await self._database.write(work)


# Inside a transaction


async def _append(connection: AsyncConnection, id: str, rows: _Rows) -> None:
    await _touch(connection, id)
    columns = tables.messages.c
    last = select(func.max(columns.position)).where(columns.conversation_id == id)
    position = await connection.scalar(last)
    first = 0 if position is None else position + 1
    place = {"conversation_id": id, "created": datetime.now(UTC)}
    values = [{**row, **place, "position": first + index} for index, row in enumerate(rows)]
    await connection.execute(insert(tables.messages), values)


async def _touch(connection: AsyncConnection, id: str, **values: str) -> None:
    # In PostgreSQL this also takes the row's lock: writers to a conversation take turns.
    table = tables.conversations
    change = update(table).where(table.c.id == readable(id))
    done = await connection.execute(change.values(updated=datetime.now(UTC), **values))
    if not done.rowcount:
        raise _unknown(id)


async def _messages(connection: AsyncConnection, id: str) -> _Messages:
    table = tables.messages
    ordered = (
        select(table).where(table.c.conversation_id == readable(id)).order_by(table.c.position)
    )
    rows = (await connection.execute(ordered)).all()
    if not rows:
        known = select(tables.conversations.c.id).where(tables.conversations.c.id == readable(id))
        if await connection.scalar(known) is None:
            raise _unknown(id)
    return [message_of(row._asdict()) for row in rows]


_listed = select(
    tables.conversations,
    select(func.count())
    .where(tables.messages.c.conversation_id == tables.conversations.c.id)
    .scalar_subquery()
    .label("message_count"),
)


def _conversation(row: Row[Any]) -> Conversation:
    return Conversation(**row._mapping)


def _unknown(id: str) -> UnknownConversation:
    return UnknownConversation(
        f"no conversation {id!r}: `interlock conversations list` shows their ids"
    )
