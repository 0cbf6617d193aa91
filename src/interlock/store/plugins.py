"""Which user has installed which plugin."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct
from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from interlock.store.changes import ChangeReader, note_change
from interlock.store.database import Database
from interlock.store.rows import storable
from interlock.store.tables import plugin_installations
from interlock.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

_TENANT = "default"


class Installation(Struct, frozen=True, order=True):
    """A user has a plugin.

    Attributes:
        plugin: Its name.
        user: The principal that has it.
        by: The principal that installed it.
        at: When, in microseconds since 1970.
    """

    plugin: str
    user: str
    by: str
    at: int

    def as_json(self) -> JsonObject:
        """Return the object for commands and the admin API."""
        return {"plugin": self.plugin, "user": self.user, "by": self.by, "at": rfc3339(self.at)}


_Installations: TypeAlias = list[Installation]


class PluginStore:
    """The installations in one database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes = ChangeReader("plugins")

    async def list(self) -> _Installations:
        """Return all installations, by plugin and user."""
        columns = plugin_installations.c
        query = select(columns.plugin, columns.user, columns.by, columns.at).where(
            columns.tenant == _TENANT
        )

        async def work(connection: AsyncConnection) -> _Installations:
            return sorted(Installation(*row) for row in await connection.execute(query))

        return await self._database.read(work)

    async def install(self, plugin: str, user: str, *, by: str) -> bool:
        """Give a user a plugin; return False if the user has it."""
        key = _key(plugin, user)

        async def work(connection: AsyncConnection) -> bool:
            found = select(plugin_installations.c.at).filter_by(**key)
            if (await connection.execute(found)).first() is not None:
                return False
            row = {**key, "by": storable(by), "at": now_micros()}
            await connection.execute(insert(plugin_installations).values(**row))
            await note_change(connection, "plugins", storable(plugin))
            return True

        return await self._database.write(work)

    async def remove(self, plugin: str, user: str) -> bool:
        """Remove a plugin of a user; return False if the user does not have it."""

        async def work(connection: AsyncConnection) -> bool:
            removed = await connection.execute(
                delete(plugin_installations).filter_by(**_key(plugin, user))
            )
            if removed.rowcount:
                await note_change(connection, "plugins", storable(plugin))
            return bool(removed.rowcount)

        return await self._database.write(work)

    async def changed(self) -> bool:
        """Return whether installations have changed since the last call."""
        return bool(await self._database.read(self._changes.read))


def _key(plugin: str, user: str) -> dict[str, str]:
    return {"tenant": _TENANT, "plugin": storable(plugin), "user": storable(user)}


__all__ = ["Installation", "PluginStore"]
