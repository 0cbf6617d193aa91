"""A store of conversations, which can be continued after a crash."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.json import decode as decode_json
from msgspec.structs import replace
from sqlalchemy import (
    ColumnElement,
    Insert,
    Row,
    and_,
    case,
    delete,
    func,
    insert,
    literal,
    or_,
    select,
    update,
)

from interlock.attachments import BLOCK
from interlock.errors import UnknownConversation
from interlock.messages import AssistantMessage, Message, Unfinished, Usage, interrupted
from interlock.protocol.envelope import encode
from interlock.store.chat.chat_calls import ChatCallStore
from interlock.store.chat.chat_files import ChatFileStore, delete_unused, note_uses
from interlock.store.chat.conversation_search import matching, newest_hits
from interlock.store.chat.drafts import DraftWriter
from interlock.store.chat.repair import answer_every_call, unanswered_calls
from interlock.store.chat.space import ChatSpace, size_of
from interlock.store.database import tables
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database, open_database
from interlock.store.database.rows import message_from_row, row_from_message, storable
from interlock.types import JsonObject

# No letters that look alike, and no characters that are special in a shell or a URL.
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 12  # 59 bits


class Conversation(Struct, frozen=True):
    """A conversation's metadata, without its messages."""

    id: str
    title: str
    model: str  # the model's name, as in `--model`; "" if none is set
    created: datetime  # UTC
    updated: datetime  # UTC; the time of the last message or change of settings
    message_count: int = 0
    owner: str = ""  # the id of the principal that owns the conversation; "" is the local user
    settings: JsonObject = {}  # settings from the chat page
    parent: str = ""  # the id of the conversation that this is a copy of; "" if it is not a copy
    forked_at: int | None = None  # the number of messages that were copied from `parent`
    bytes: int = 0  # the size of all messages and calls
    hit: int | None = None  # of a search result: the position of the newest message that matches


class StoredMessage(Struct, frozen=True):
    """A message with its position in the conversation."""

    position: int  # counts from 0
    created: datetime  # UTC
    message: Message
    model: str = ""  # the model that wrote the message; "" if unknown


# An alias, because inside the class `list` is the method and not the builtin type.
_Conversations: TypeAlias = list[Conversation]
_Messages: TypeAlias = list[Message]
_Stored: TypeAlias = list[StoredMessage]
_Positions: TypeAlias = list[int]
_Rows: TypeAlias = list[dict[str, str | None]]


class ConversationStore:
    """The conversations of one owner in one database.

    Other processes may use the database at the same time. A change survives a crash once its
    method has returned. Every method may raise a `StoreError`; see the tree in
    `interlock.errors`. If a PostgreSQL server has ended, the error is raised at once. If the
    server hangs, the error is raised after 6 seconds, or after 11 seconds if all 15 connections
    are in use. A change is made completely or not at all. The store works again as soon as the
    server does. Call the methods only from the event loop that opened the store.
    """

    def __init__(
        self,
        database: Database,
        owner: str = "",
        *,
        space: ChatSpace | None = None,
        drafts: DraftWriter | None = None,
    ) -> None:
        self._space = space or ChatSpace()
        self._drafts = drafts or DraftWriter(database)
        self._database = database
        self._owner = storable(owner)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, location: str | Path | None = None, owner: str = ""
    ) -> AsyncIterator[ConversationStore]:
        """Open a database; create or upgrade its tables if necessary.

        Args:
            location: A path or a postgresql:// URL; None for INTERLOCK_DATABASE, or else
                `conversations.db` in the user's data folder.
            owner: The id of the principal whose conversations are used; "" is the local user.

        Raises:
            StoreError: The database cannot be used. A read-only database can be opened and read.
            MissingExtra: A package for this kind of database is not installed.
        """
        database = await open_database(location)
        try:
            yield cls(database, owner)
        finally:
            await database.close()

    @property
    def location(self) -> str:
        """The database's path, or its server and name without user and password."""
        return self._database.location

    @property
    def database(self) -> Database:
        return self._database

    def owned_by(self, owner: str) -> ConversationStore:
        """Return a store for another owner's conversations in the same database."""
        return ConversationStore(self._database, owner, space=self._space, drafts=self._drafts)

    @property
    def calls(self) -> ChatCallStore:
        return ChatCallStore(self._database, self._owner, self._space)

    @property
    def files(self) -> ChatFileStore:
        return ChatFileStore(self._database, self._owner, self._space)

    # Conversations

    async def create(self, title: str = "", model: str = "") -> Conversation:
        """Create an empty conversation. Characters that a database cannot store become U+FFFD.

        Raises:
            StoreFull: The owner, or all owners, have no room for it.
        """
        conversation = self._new(title, model)
        self._space.check_disk(self._database.reserve, conversation.bytes)
        await self._database.write(lambda connection: self._insert(connection, conversation))
        return conversation

    def _new(self, title: str, model: str) -> Conversation:
        id = "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
        now = datetime.now(UTC)
        shown = (storable(title), storable(model))
        size = size_of((id, *shown, self._owner))
        return Conversation(id, *shown, now, now, owner=self._owner, bytes=size)

    async def resolve(self, prefix: str) -> Conversation:
        """Return the conversation whose id is `prefix`, or the only one whose id starts with it.

        Raises:
            UnknownConversation: No conversation matches, or several conversations match.
        """
        prefix = storable(prefix)
        columns = tables.conversations.c
        matches = and_(
            columns.owner == self._owner, func.substr(columns.id, 1, len(prefix)) == prefix
        )

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            query = _listed.where(matches).order_by(columns.id).limit(6)
            return (await connection.execute(query)).all()

        found = [_conversation(row) for row in await self._database.read(work)] if prefix else []
        if len(found) == 1 or (found and found[0].id == prefix):
            return found[0]
        if not found:
            raise _unknown(prefix)
        ids = ", ".join(each.id for each in found[:5]) + (", …" if len(found) > 5 else "")
        raise UnknownConversation(f"{prefix!r} could be {ids}: give more of the id")

    async def list(self, limit: int = 50, before: Conversation | None = None) -> _Conversations:
        """Return a page of conversations, most recently changed first.

        Args:
            limit: The largest number of conversations to return.
            before: The last conversation on the previous page; None for the first page.
        """
        columns = tables.conversations.c
        page = _listed.where(columns.owner == self._owner)
        if before:
            same_time = and_(columns.updated == before.updated, columns.id < before.id)
            page = page.where(or_(columns.updated < before.updated, same_time))
        page = page.order_by(columns.updated.desc(), columns.id.desc()).limit(limit)

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(page)).all()

        return [_conversation(row) for row in await self._database.read(work)]

    async def search(self, text: str, limit: int = 50) -> _Conversations:
        """Return conversations in which all words of a query occur in the title or in one message.

        Args:
            text: Words, and phrases in double quotes; see `store.chat.conversation_search`.
            limit: The largest number of conversations to return, most recently changed first.
        """
        wanted, columns = storable(text), tables.conversations.c

        async def work(connection: AsyncConnection) -> _Conversations:
            matches = await matching(connection, self._owner, wanted, limit)
            page = _listed.where(columns.owner == self._owner, matches.condition)
            page = page.order_by(columns.updated.desc(), columns.id.desc()).limit(limit)
            found = [_conversation(row) for row in await connection.execute(page)]
            hits = await newest_hits(connection, matches, [each.id for each in found])
            return [replace(each, hit=hits.get(each.id)) for each in found]

        return await self._database.read(work)

    async def fork(self, id: str, count: int | None = None) -> Conversation:
        """Copy a conversation, so that it can be continued in two ways.

        Args:
            id: The id of the conversation, which stays unchanged.
            count: The number of messages to copy, from the start; None to copy all.
        """
        original = await self.resolve(id)
        copied_count = original.message_count if count is None else count
        copy = replace(
            self._new(original.title, original.model),
            settings=original.settings,
            parent=original.id,
            forked_at=copied_count,
        )
        columns = tables.messages.c
        others = [each for each in columns if each is not columns.conversation_id]
        copied = select(literal(copy.id), *others).where(columns.conversation_id == original.id)
        if count is not None:
            copied = copied.where(columns.position < count)
        names = [columns.conversation_id.name, *(each.name for each in others)]

        async def work(connection: AsyncConnection) -> None:
            await self._insert(connection, copy)
            await connection.execute(insert(tables.messages).from_select(names, copied))
            await connection.execute(_copied_calls(original.id, copy.id))
            await connection.execute(_copied_uses(original.id, copy.id))
            size = await _copied_bytes(connection, copy.id)
            self._space.check_disk(self._database.reserve, size)
            await self._touch(connection, copy.id, size)

        await self._database.write(work)
        return await self.resolve(copy.id)

    async def branches(self, id: str) -> _Conversations:
        """Return the copies of a conversation, or of its original if it is a copy; oldest first."""
        found = await self.resolve(id)
        columns = tables.conversations.c
        related = or_(columns.parent == found.id, columns.id == (found.parent or found.id))
        if found.parent:
            related = or_(related, columns.parent == found.parent)
        page = _listed.where(columns.owner == self._owner, related)

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(page.order_by(columns.created))).all()

        return [_conversation(row) for row in await self._database.read(work)]

    async def update(
        self,
        id: str,
        *,
        title: str | None = None,
        model: str | None = None,
        settings: JsonObject | None = None,
    ) -> None:
        """Change a conversation's title, model or settings; None leaves a value unchanged."""
        encoded = None if settings is None else encode(settings).decode()
        given = {"title": title, "model": model, "settings": encoded}
        changes = {name: storable(value) for name, value in given.items() if value is not None}
        columns = tables.conversations.c
        before = select(*(columns[name] for name in changes)).where(self._owned(id))

        async def work(connection: AsyncConnection) -> None:
            row = (await connection.execute(before.with_for_update())).first() if changes else ()
            grows = size_of([*changes.values()]) - size_of([*(row or ())])
            await self._touch(connection, id, grows, **changes)

        await self._database.write(work)

    async def delete(self, id: str) -> None:
        """Delete a conversation, and the files that no other conversation uses.

        Raises:
            UnknownConversation: The owner has no such conversation.
        """
        await self._database.write(lambda connection: self._delete(connection, id))

    async def _delete(self, connection: AsyncConnection, id: str) -> None:
        uses = tables.chat_file_uses.c
        used = select(uses.file_id).where(uses.conversation_id == storable(id))
        files = [row.file_id for row in await connection.execute(used)]
        removed = delete(tables.conversations).where(self._owned(id))
        size = await connection.scalar(removed.returning(tables.conversations.c.bytes))
        if size is None:
            raise _unknown(id)
        await self._space.add(connection, self._owner, "conversations", -size)
        if files:
            is_used = tables.chat_files.c.id.in_(files)
            mine = tables.chat_files.c.owner == self._owner
            await delete_unused(connection, self._space, mine, is_used)

    # Messages

    async def append(
        self, id: str, *messages: Message, model: str = "", draft: int | None = None
    ) -> int:
        """Append all messages or none of them. They are durable when this returns.

        A cancelled call returns only once it is certain whether the messages were added.

        Args:
            id: The id of the conversation.
            messages: The messages to append.
            model: The model that wrote the assistant's messages.
            draft: The position of a draft of the first message, which the message replaces.

        Returns:
            The position of the last message.

        Raises:
            UnknownConversation: The conversation was deleted or never existed.
            StoreFull: The owner, or all owners, have no room for the messages.
            StoreError: A tool call's input is not JSON, or the database fails.
        """
        if draft is not None and _are_draft(messages):
            await self._drafts.put(storable(id), draft, storable(messages[0].content))
            return draft
        rows = [row_from_message(message) for message in messages]
        for row in rows:
            row["model"] = model or None if row["role"] == "assistant" else None
        return await self._database.write(
            lambda connection: self._append(connection, id, rows, draft)
        )

    async def append_after(self, id: str, count: int, *messages: Message) -> int | None:
        """Append messages if the conversation still has `count` messages.

        Returns:
            The position of the last message; None if another program has added messages, so that
            the conversation must be read again.

        Raises:
            StoreError: As in `append`.
        """
        rows = [row_from_message(message) for message in messages]

        async def work(connection: AsyncConnection) -> int | None:
            await self._touch(connection, id)  # locks the conversation
            columns = tables.messages.c
            counted = select(func.count()).where(columns.conversation_id == id)
            if await connection.scalar(counted) != count:
                return None
            return await self._append(connection, id, rows)

        return await self._database.write(work)

    async def messages(self, id: str) -> _Messages:
        """Return the messages exactly as they were appended, even if no provider accepts them."""
        return await self._database.read(lambda connection: self._messages(connection, id))

    async def usage(self, conversation: Conversation) -> dict[str, Usage]:
        """Return the token usage of a conversation by model.

        Replies whose model is unknown are counted for the conversation's model.
        """
        columns = tables.messages.c
        wanted = select(columns.model, columns.usage).join(tables.conversations)
        mine = wanted.where(self._owned(conversation.id))
        counted = mine.where(columns.usage.is_not(None)).order_by(columns.position)

        async def work(connection: AsyncConnection) -> Sequence[Row[Any, Any]]:
            return (await connection.execute(counted)).all()

        found: dict[str, Usage] = {}
        for row in await self._database.read(work):
            model = row.model or conversation.model
            used = decode_json(row.usage, type=Usage)
            found[model] = found.get(model, Usage()).plus(used)
        return found

    async def counts(self, id: str, *, before: int | None = None) -> tuple[int, int]:
        """Return the numbers of answers, and of calls with a result, up to a position."""
        columns = tables.messages.c
        is_answer = and_(columns.role == "assistant", columns.tool_calls.is_(None))
        query = select(
            func.count(case((is_answer, 1))), func.count(case((columns.role == "tool", 1)))
        )
        mine = query.select_from(tables.messages).join(tables.conversations).where(self._owned(id))
        if before is not None:
            mine = mine.where(columns.position < before)

        async def work(connection: AsyncConnection) -> tuple[int, int]:
            answers, calls = (await connection.execute(mine)).one()
            return answers, calls

        return await self._database.read(work)

    async def page(
        self, id: str, *, before: int | None = None, after: int | None = None, limit: int = 60
    ) -> _Stored:
        """Return a page of messages in order. The first message on a page is from the user.

        Args:
            id: The id of the conversation.
            before: The position of the first message on the next page; None for the last page.
            after: The position of a message of the page's first turn; None for the page that ends
                at `before`.
            limit: The approximate number of messages; a page never begins in the middle of a turn.
        """
        columns = tables.messages.c
        mine = select(tables.messages).join(tables.conversations).where(self._owned(id))
        if before is not None:
            mine = mine.where(columns.position < before)

        questions = mine.where(columns.role == "user")

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            lowest, page = after, mine
            if after is None:
                oldest = mine.order_by(columns.position.desc()).limit(limit).subquery()
                lowest = await connection.scalar(select(func.min(oldest.c.position)))
            if lowest is None:
                await self._check_exists(connection, id)
                return []
            asked = questions.where(columns.position <= lowest).subquery()
            first = await connection.scalar(select(func.max(asked.c.position))) or 0
            if after is not None:
                later = questions.where(columns.position >= first + limit).subquery()
                end = await connection.scalar(select(func.min(later.c.position)))
                page = mine if end is None else mine.where(columns.position < end)
            query = page.where(columns.position >= first).order_by(columns.position)
            return (await connection.execute(query)).all()

        return [
            StoredMessage(
                row.position, row.created, message_from_row(row._asdict()), row.model or ""
            )
            for row in await self._database.read(work)
        ]

    async def resume(self, id: str) -> _Messages:
        """Return the messages in a form that every provider accepts, to continue the conversation.

        A crash or a cancellation can leave tool calls without results; they get results that
        say "interrupted". Such results at the end of the conversation are stored. A draft becomes
        an answer that was "interrupted". No other program should use the conversation: tool
        results that it adds later are stored, but not sent to the model.
        """
        messages = await self.messages(id)
        drafts = [
            place
            for place, each in enumerate(messages)
            if isinstance(each, AssistantMessage) and each.is_draft
        ]
        if not unanswered_calls(messages) and not drafts:
            return answer_every_call(messages)

        async def work(connection: AsyncConnection) -> _Messages:
            await self._touch(connection, id)
            for place in drafts:
                await self._interrupt(connection, id, place)
            messages = await self._messages(connection, id)
            answers = [interrupted(call) for call in unanswered_calls(messages)]
            if answers:
                await self._append(connection, id, [row_from_message(each) for each in answers])
            return answer_every_call([*messages, *answers])

        return await self._database.write(work)

    # Inside a transaction

    async def _append(
        self, connection: AsyncConnection, id: str, rows: _Rows, draft: int | None = None
    ) -> int:
        sizes = [0 if row["unfinished"] == tables.DRAFT else size_of(row.values()) for row in rows]
        self._space.check_disk(self._database.reserve, sum(sizes))
        await self._touch(connection, id, sum(sizes))
        columns = tables.messages.c
        query = select(func.max(columns.position)).where(columns.conversation_id == id)
        last: int | None = await connection.scalar(query)
        first = 0 if last is None else last + 1
        positions: _Positions = [*range(first, first + len(rows))]
        if draft is not None and rows:
            is_draft = and_(columns.conversation_id == id, columns.position == draft)
            await connection.execute(delete(tables.messages).where(is_draft))
            positions = [draft, *positions[:-1]]
        if not rows:
            return first - 1
        common = {"conversation_id": id, "created": datetime.now(UTC)}
        values = [
            {**row, **common, "position": position, "bytes": size}
            for row, position, size in zip(rows, positions, sizes, strict=True)
        ]
        await connection.execute(insert(tables.messages), values)
        texts = [row["content"] or "" for row in rows if row["role"] == "user"]
        if files := [match[1] for text in texts for match in BLOCK.finditer(text)]:
            await note_uses(connection, self._owner, storable(id), files)
        return positions[-1]

    async def _interrupt(self, connection: AsyncConnection, id: str, position: int) -> None:
        """Make a draft an answer that was interrupted: it is counted and found from now on."""
        columns = tables.messages.c
        is_draft = and_(
            columns.conversation_id == id,
            columns.position == position,
            columns.unfinished == tables.DRAFT,
        )
        taken = delete(tables.messages).where(is_draft).returning(tables.messages)
        row = (await connection.execute(taken)).first()
        if row is not None:
            why = encode(Unfinished("interrupted", "its program was ended")).decode()
            size = size_of(row)
            await self._touch(connection, id, size)
            values = {**row._mapping, "unfinished": why, "bytes": size}
            await connection.execute(insert(tables.messages), [values])

    async def _insert(self, connection: AsyncConnection, conversation: Conversation) -> None:
        await self._space.add(connection, self._owner, "conversations", conversation.bytes)
        await _insert(connection, conversation)

    async def _touch(
        self, connection: AsyncConnection, id: str, grows: int = 0, **changes: str
    ) -> None:
        # In PostgreSQL the update also locks the row, so writers to one conversation take turns.
        change = update(tables.conversations).where(self._owned(id))
        size = tables.conversations.c.bytes + grows
        values = {"updated": datetime.now(UTC), "bytes": size, **changes}
        if not (await connection.execute(change.values(values))).rowcount:
            raise _unknown(id)
        if grows:
            await self._space.add(connection, self._owner, "conversations", grows)

    async def _messages(self, connection: AsyncConnection, id: str) -> _Messages:
        query = select(tables.messages).join(tables.conversations).where(self._owned(id))
        rows = (await connection.execute(query.order_by(tables.messages.c.position))).all()
        if not rows:
            await self._check_exists(connection, id)
        return [message_from_row(row._asdict()) for row in rows]

    async def _check_exists(self, connection: AsyncConnection, id: str) -> None:
        known = select(tables.conversations.c.id).where(self._owned(id))
        if await connection.scalar(known) is None:
            raise _unknown(id)

    def _owned(self, id: str) -> ColumnElement[bool]:
        columns = tables.conversations.c
        return and_(columns.id == storable(id), columns.owner == self._owner)


_listed = select(
    tables.conversations,
    select(func.count())
    .where(tables.messages.c.conversation_id == tables.conversations.c.id)
    .scalar_subquery()
    .label("message_count"),
)


async def _insert(connection: AsyncConnection, conversation: Conversation) -> None:
    values = {each.name: getattr(conversation, each.name) for each in tables.conversations.columns}
    values["settings"] = encode(conversation.settings).decode()
    await connection.execute(insert(tables.conversations).values(values))


def _copied_calls(original: str, copy: str) -> Insert:
    """Return a statement that copies all calls, even those of messages that are not copied."""
    columns = tables.chat_calls.c
    others = [each for each in columns if each is not columns.conversation_id]
    copied = select(literal(copy), *others).where(columns.conversation_id == original)
    names = [columns.conversation_id.name, *(each.name for each in others)]
    return insert(tables.chat_calls).from_select(names, copied)


def _copied_uses(original: str, copy: str) -> Insert:
    columns = tables.chat_file_uses.c
    used = select(literal(copy), columns.file_id).where(columns.conversation_id == original)
    return insert(tables.chat_file_uses).from_select(["conversation_id", "file_id"], used)


async def _copied_bytes(connection: AsyncConnection, copy: str) -> int:
    total = 0
    for table in (tables.messages, tables.chat_calls):
        size = select(func.sum(table.c.bytes)).where(table.c.conversation_id == copy)
        total += int(await connection.scalar(size) or 0)
    return total


def _are_draft(messages: Sequence[Message]) -> bool:
    first = messages[0] if messages else None
    return isinstance(first, AssistantMessage) and first.is_draft


def _conversation(row: Row[Any]) -> Conversation:
    return Conversation(**{**row._mapping, "settings": decode_json(row.settings)})


def _unknown(id: str) -> UnknownConversation:
    return UnknownConversation(
        f"no conversation {id!r}: `interlock conversations list` shows their ids"
    )
