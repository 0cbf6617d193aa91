"""A store that records which users have installed which plugins."""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct
from sqlalchemy import delete, insert, select

from interlock.store.database.changes import change_statement
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.on_conflict import KEEP_EXISTING
from interlock.store.database.recorded import Record, claim_of, make_change
from interlock.store.database.rows import storable
from interlock.store.database.tables import plugin_installations
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

KIND: Final = "plugins"  # the kind of rows in `changes`
_TENANT = "default"


class Installation(Struct, frozen=True, order=True):
    """A plugin that a user has installed.

    Attributes:
        plugin: The plugin's name.
        user: The id of the principal that has the plugin.
        by: The id of the principal that installed the plugin.
        at: The time of installation, in microseconds since 1970.
    """

    plugin: str
    user: str
    by: str
    at: int

    def as_json(self) -> JsonObject:
        return {"plugin": self.plugin, "user": self.user, "by": self.by, "at": rfc3339(self.at)}


_Installations: TypeAlias = list[Installation]


class PluginStore:
    """A store of installations in one database. Every method may raise a `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self) -> _Installations:
        """Return all installations, ordered by plugin and user."""
        columns = plugin_installations.c
        query = select(columns.plugin, columns.user, columns.by, columns.at).where(
            columns.tenant == _TENANT
        )

        async def work(connection: AsyncConnection) -> _Installations:
            return sorted(Installation(*row) for row in await connection.execute(query))

        return await self._database.read(work)

    async def find(self, plugin: str, user: str) -> Installation | None:
        """Return a user's installation of a plugin; None if the user does not have it."""
        return next(
            (each for each in await self.list() if (each.plugin, each.user) == (plugin, user)), None
        )

    async def install(
        self, plugin: str, user: str, *, by: str, record: Record | None = None
    ) -> Installation | None:
        """Install a plugin for a user; return None if the user already has the plugin.

        Args:
            plugin: The plugin's name.
            user: The id of the principal that receives the plugin.
            by: The id of the principal that installs the plugin.
            record: Writes the change with its audit record.
        """
        made = Installation(plugin, user, by, now_micros())
        row = {**_key(plugin, user), "by": storable(by), "at": made.at}
        added = insert(plugin_installations).values(row).ext(KEEP_EXISTING)
        claim = claim_of(added, change_statement(KIND, storable(plugin)))
        return made if await make_change(self._database, claim, record, None, made) else None

    async def remove(self, plugin: str, user: str, *, record: Record | None = None) -> bool:
        """Remove a user's plugin; return False if the user does not have it."""
        before = await self.find(plugin, user)
        if before is None:
            return False
        removed = delete(plugin_installations).filter_by(**_key(plugin, user))
        claim = claim_of(removed, change_statement(KIND, storable(plugin)))
        return await make_change(self._database, claim, record, before, None)


def _key(plugin: str, user: str) -> dict[str, str]:
    return {"tenant": _TENANT, "plugin": storable(plugin), "user": storable(user)}
