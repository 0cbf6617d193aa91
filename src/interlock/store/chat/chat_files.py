"""A store of the files that users attach to chat messages."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Row, and_, insert, select

from interlock.errors import UnknownConversation
from interlock.store.database import tables
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
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

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = storable(owner)

    async def add(self, name: str, type: str, content: bytes) -> ChatFile:
        file = ChatFile(
            f"f_{secrets.token_urlsafe(12)}", storable(name), type, len(content), now_micros()
        )
        values = {
            **{name: getattr(file, name) for name in file.__struct_fields__},
            "owner": self._owner,
            "content": content,
        }
        await self._database.write(
            lambda connection: connection.execute(insert(tables.chat_files).values(values))
        )
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

    async def named(self, ids: Sequence[str]) -> list[ChatFile]:
        """Return the files with these ids, without their content; skip ids that do not exist."""
        columns = tables.chat_files.c
        shown = [getattr(columns, name) for name in ChatFile.__struct_fields__]
        query = select(*shown).where(columns.owner == self._owner, columns.id.in_(ids))

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(query)).all()

        return [ChatFile(**row._mapping) for row in await self._database.read(work)]
