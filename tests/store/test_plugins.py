"""Installations of plugins are kept and noticed, in SQLite and PostgreSQL."""

from __future__ import annotations

from interlock.store.database.changes import ChangeReader
from interlock.store.database.database import open_database
from interlock.store.plugins import PluginStore


async def test_plugin_installed_twice_is_stored_once_and_seen_by_other_processes(place: str):
    database = await open_database(place)
    store, other = PluginStore(database), ChangeReader("plugins")
    try:
        await database.read(other.read)
        assert await store.install("refunds", "user:anna", by="user:local")
        assert not await store.install("refunds", "user:anna", by="user:local")
        assert await database.read(other.read) == {"refunds"}
        (kept,) = await store.list()
        assert (kept.plugin, kept.user, kept.by) == ("refunds", "user:anna", "user:local")
        assert await store.remove("refunds", "user:anna")
        assert not await store.remove("refunds", "user:anna")
        assert await database.read(other.read) == {"refunds"}
        assert await store.list() == []
    finally:
        await database.close()
