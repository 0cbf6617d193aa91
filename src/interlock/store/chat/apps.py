"""A store that records which app documents users have accepted."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.rows import storable
from interlock.store.database.tables import chat_apps


class ChatAppStore:
    """A store of accepted documents in one database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def accepted(self, owner: str, server: str, uri: str) -> str | None:
        """Return the hash of the document that a user accepted; None for no document."""
        columns = chat_apps.c
        query = select(columns.hash).where(
            columns.owner == storable(owner),
            columns.server == storable(server),
            columns.uri == storable(uri),
        )

        async def work(connection: AsyncConnection) -> str | None:
            found: str | None = await connection.scalar(query)
            return found

        return await self._database.read(work)

    async def accept(self, owner: str, server: str, uri: str, hash: str) -> None:
        columns = chat_apps.c
        key = {"owner": storable(owner), "server": storable(server), "uri": storable(uri)}

        async def work(connection: AsyncConnection) -> None:
            same = [columns[name] == value for name, value in key.items()]
            await connection.execute(delete(chat_apps).where(*same))
            await connection.execute(insert(chat_apps).values(**key, hash=hash))

        await self._database.write(work)
