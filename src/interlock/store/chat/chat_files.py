"""A store of the files that users attach to chat messages."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Row, and_, delete, insert, literal, select

from interlock.errors import UnknownConversation
from interlock.store.chat.space import ROW, ChatSpace
from interlock.store.database import tables
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.on_conflict import KEEP_EXISTING
from interlock.store.database.rows import storable
from interlock.text.timestamps import now_micros


class ChatFile(Struct, frozen=True):
    """An attached file. Its name is only for display, and never used as a path.

    Attributes:
        id: The unique id of the file.
        name: The file's name, from the sender.
        type: The media type, which is detected from the content.
        bytes: The size of the content.
        created: The time of upload, in microseconds since 1970.
    """

    id: str
    name: str
    type: str
    bytes: int
    created: int


class ChatFileStore:
    """A store of one owner's files."""

    def __init__(self, database: Database, owner: str, space: ChatSpace) -> None:
        self._space = space
        self._database = database
        self._owner = storable(owner)

    async def add(self, name: str, type: str, content: bytes) -> ChatFile:
        """Store a file.

        Raises:
            StoreFull: The owner, or all owners, have no room for it.
        """
        file = ChatFile(
            f"f_{secrets.token_urlsafe(12)}", storable(name), type, len(content), now_micros()
        )
        values = {
            **{name: getattr(file, name) for name in file.__struct_fields__},
            "owner": self._owner,
            "content": content,
        }
        size = ROW + len(content)
        self._space.check_disk(self._database.reserve, size)

        async def work(connection: AsyncConnection) -> None:
            await self._space.add(connection, self._owner, "files", size)
            await connection.execute(insert(tables.chat_files).values(values))

        await self._database.write(work)
        return file

    async def get(self, id: str) -> tuple[ChatFile, bytes]:
        """Return a file and its content.

        Raises:
            UnknownConversation: The owner has no file with this id.
        """
        columns = tables.chat_files.c
        query = select(tables.chat_files).where(
            and_(columns.id == storable(id), columns.owner == self._owner)
        )

        async def work(connection: AsyncConnection) -> Row[Any] | None:
            return (await connection.execute(query)).first()

        row = await self._database.read(work)
        if row is None:
            raise UnknownConversation("no such file")
        return ChatFile(row.id, row.name, row.type, row.bytes, row.created), row.content

    async def use(self, conversation: str, ids: Collection[str]) -> None:
        """Note that a conversation uses files; the messages of a store note this themselves."""
        await self._database.write(
            lambda connection: note_uses(connection, self._owner, conversation, ids)
        )

    async def named(self, ids: Sequence[str]) -> list[ChatFile]:
        """Return the files with these ids, without their content; skip ids that do not exist."""
        columns = tables.chat_files.c
        shown = [getattr(columns, name) for name in ChatFile.__struct_fields__]
        query = select(*shown).where(
            columns.owner == self._owner, columns.id.in_(map(storable, ids))
        )

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(query)).all()

        return [ChatFile(**row._mapping) for row in await self._database.read(work)]


async def note_uses(
    connection: AsyncConnection, owner: str, conversation: str, ids: Collection[str]
) -> None:
    """Note which of an owner's files a conversation uses, so that they do not expire."""
    files = tables.chat_files.c
    found = select(literal(conversation), files.id).where(
        files.owner == owner, files.id.in_(map(storable, ids))
    )
    added = insert(tables.chat_file_uses).from_select(["conversation_id", "file_id"], found)
    await connection.execute(added.ext(KEEP_EXISTING))


def is_used() -> ColumnElement[bool]:
    """Return the condition that a conversation uses a file."""
    uses = tables.chat_file_uses.c
    return select(uses.file_id).where(uses.file_id == tables.chat_files.c.id).exists()


async def delete_unused(
    connection: AsyncConnection, space: ChatSpace, *conditions: ColumnElement[bool]
) -> int:
    """Delete the files that meet all conditions and that no conversation uses; return how many."""
    files = tables.chat_files.c
    removed = delete(tables.chat_files).where(~is_used(), *conditions)
    rows = (await connection.execute(removed.returning(files.owner, files.bytes))).all()
    for owner in sorted({row.owner for row in rows}):
        sizes = [ROW + row.bytes for row in rows if row.owner == owner]
        await space.add(connection, owner, "files", -sum(sizes))
    return len(rows)
