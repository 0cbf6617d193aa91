"""Databases of older and newer versions, and of other programs."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text

import interlock.store
from interlock.errors import StoreCorrupt, StoreError, StoreTooNew
from interlock.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from interlock.store import AuditReader, AuditRecord, AuditWriter, ConversationStore
from interlock.store.audit.reading import CallFilter
from interlock.store.database import database as database_module
from interlock.store.database.database import open_database
from interlock.store.database.revisions import REVISIONS
from interlock.store.database.tables import metadata
from interlock.store.database.upgrade import migrate, upgrade

pytestmark = pytest.mark.usefixtures("created_databases")

MIGRATIONS = Path(interlock.store.__file__).parent / "database/migrations"


async def open_and_close(place: str | Path) -> None:
    async with ConversationStore.open(place):
        pass


def test_revisions_lists_all_migrations():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config).walk_revisions()

    assert [script.revision for script in scripts] == list(reversed(REVISIONS))


@pytest.mark.slow("fills a database")
def test_the_migrations_create_the_tables_of_a_new_database(tmp_path: Path):
    new, migrated = (create_engine(f"sqlite:///{tmp_path}/{name}.db") for name in ("new", "old"))
    with new.begin() as connection:
        upgrade(connection, "new.db")
        of_new = schema_of(connection)
    with migrated.begin() as connection:
        migrate(connection)
        options = {"include_name": lambda name, kind, _: kind != "table" or "message_" not in name}
        context = MigrationContext.configure(connection, opts=options)  # without the words
        differences = compare_metadata(context, metadata)
        of_migrated = schema_of(connection)
    new.dispose()
    migrated.dispose()

    assert differences == []
    assert of_new == of_migrated


def schema_of(connection: Connection) -> dict[str, object]:
    """Return the columns, keys and indexes of each table."""
    found = inspect(connection)
    return {
        table: (
            {each["name"]: str(each) for each in found.get_columns(table)},
            found.get_pk_constraint(table),
            found.get_foreign_keys(table),
            {
                each["name"]: (each["column_names"], each["unique"], *map(str, options.values()))
                for each in found.get_indexes(table)
                for options in [each["dialect_options"]]
            },
        )
        for table in found.get_table_names()
    }


OLD_MESSAGES = [
    SystemMessage("Be brief."),
    UserMessage("hello 日本 'x'"),
    AssistantMessage(""),
    ToolMessage("", "12:00"),
]


@pytest.mark.slow("fills a database")
async def test_an_upgraded_database_keeps_its_messages_and_accepts_new_ones(old_place: str):
    called = AssistantMessage("", (ToolCall("1", "clock__now", {"zone": "UTC"}),))

    async with ConversationStore.open(old_place) as store:
        (old,) = await store.list()
        assert (old.id, old.title, old.model, old.message_count) == ("old", "Old times", "m", 4)
        assert old.owner == ""
        assert old.created == datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
        assert await store.messages("old") == OLD_MESSAGES
        assert [each.id for each in await store.search("hello")] == ["old"]
        assert await store.search("brief") == []
        await store.append("old", called)

    async with ConversationStore.open(old_place) as store:
        assert await store.messages("old") == [*OLD_MESSAGES, called]


@pytest.mark.slow("fills a database")
async def test_database_without_version_keeps_the_newer_columns_it_has(old_place: str, change):
    await change(old_place, "ALTER TABLE messages ADD COLUMN tool_calls TEXT")
    await change(
        old_place,
        """UPDATE messages SET tool_calls = '[{"id":"1","name":"n","input":{"a":1}}]'
        WHERE role = 'assistant'""",
    )

    async with ConversationStore.open(old_place) as store:
        assert (await store.messages("old"))[2].tool_calls == (ToolCall("1", "n", {"a": 1}),)


@pytest.mark.slow("fills a database")
async def test_a_database_of_the_first_version_is_upgraded(old_place: str, change):
    await change(old_place, "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    await change(old_place, "INSERT INTO alembic_version VALUES ('0001')")

    async with ConversationStore.open(old_place) as store:
        assert await store.messages("old") == OLD_MESSAGES


async def test_an_audit_trail_of_version_0018_keeps_its_calls_and_gets_the_new_indexes(
    place: str, change
):
    async with AuditWriter.open(place) as writer:
        await writer.append(AuditRecord("intent", "c1", "user:anna", tool="crm:t"))
        await writer.append(AuditRecord("outcome", "c1", "user:anna", tool="crm:t", status="ok"))
    of_new = await indexes_of_audit(place)
    old = {"audit_at": "at", "audit_user_at": '"user", at', "audit_tool_at": "tool, at"}
    for name, columns in old.items():
        await change(place, f"DROP INDEX {name}", f"CREATE INDEX {name} ON audit ({columns})")
    await change(place, "UPDATE alembic_version SET version_num = '0018'")

    async with AuditReader.open(place) as reader:
        (call,) = await reader.calls(CallFilter(user="user:anna", tool="crm:t"))

    assert call["status"] == "ok"
    assert await indexes_of_audit(place) == of_new


async def indexes_of_audit(place: str) -> object:
    """Return the indexes of audit records, with their conditions."""
    database = await open_database(place)
    try:
        return (await database.read(lambda it: it.run_sync(schema_of)))["audit"]
    finally:
        await database.close()


async def test_an_upgrade_of_a_server_may_take_longer_than_other_work(
    postgres: str, monkeypatch: pytest.MonkeyPatch
):
    timeouts, connect = [], database_module.postgres.connect

    def noted(url: str, *, timeout: float, command_timeout: float):
        timeouts.append(command_timeout)
        return connect(url, timeout=timeout, command_timeout=command_timeout)

    monkeypatch.setattr(database_module.postgres, "connect", noted)
    for _ in range(2):
        await (await open_database(postgres)).close()

    assert timeouts == [6, 3_600, 6]


async def test_a_failed_upgrade_changes_nothing(old_place: str, change, dump):
    # The last statement of the upgrade creates a table of this name.
    await change(old_place, "CREATE INDEX audit_heads ON messages (role)")
    before = await dump(old_place)

    with pytest.raises(StoreError):
        await open_and_close(old_place)

    assert await dump(old_place) == before


async def test_a_newer_database_is_refused_and_not_changed(place: str, change, dump):
    async with ConversationStore.open(place) as store:
        await store.create("from the future")
    await change(place, "UPDATE alembic_version SET version_num = '9999'")
    before = await dump(place)

    with pytest.raises(StoreTooNew, match="has version 9999, this program supports up to 0019"):
        await open_and_close(place)

    assert await dump(place) == before


def test_a_file_of_another_program_is_refused_and_not_changed(tmp_path: Path):
    path = tmp_path / "bookmarks.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()

    with pytest.raises(StoreCorrupt, match=r"another program's database \(table 'bookmarks'\)"):
        asyncio.run(open_and_close(path))

    assert path.read_bytes() == before


def test_a_newer_file_is_refused_and_not_changed(tmp_path: Path):
    path = tmp_path / "newer.db"
    with closing(sqlite3.connect(path)) as newer:
        newer.execute("CREATE TABLE alembic_version (version_num TEXT)")
        newer.execute("INSERT INTO alembic_version VALUES ('9999')")
        newer.commit()
    before = path.read_bytes()

    with pytest.raises(StoreTooNew):
        asyncio.run(open_and_close(path))

    assert path.read_bytes() == before


async def test_a_table_of_another_program_is_refused(new_place: str, change):
    await change(new_place, "CREATE TABLE messages (sender TEXT, body TEXT)")

    with pytest.raises(StoreCorrupt, match=r"another program's database \(table 'messages'\)"):
        await open_and_close(new_place)


async def test_a_database_that_lacks_a_table_is_refused(old_place: str, change):
    await change(old_place, "DROP TABLE messages")

    with pytest.raises(StoreCorrupt, match="lacks one of its tables"):
        await open_and_close(old_place)


async def test_a_database_of_a_server_may_have_tables_of_other_programs(postgres: str, change):
    await change(postgres, "CREATE TABLE bookmarks (url TEXT)")

    async with ConversationStore.open(postgres) as store:
        assert await store.list() == []


OPEN_AND_PRINT = """
import asyncio, sys
from interlock.store import ConversationStore

async def main():
    for place in sys.argv[1:]:
        async with ConversationStore.open(place) as store:
            await store.create()
        print("alembic" in sys.modules)

asyncio.run(main())
"""


@pytest.mark.slow("starts a process that loads much")
def test_alembic_is_imported_only_for_an_upgrade(tmp_path: Path, old_place: str):
    command = [sys.executable, "-W", "error", "-c", OPEN_AND_PRINT]
    new = str(tmp_path / "new.db")

    printed = subprocess.check_output([*command, new, new, old_place], text=True)

    assert printed.split() == ["False", "False", "True"]


def test_upgrade_refuses_a_database_that_became_newer_in_the_meantime():
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('9999')"))

        with pytest.raises(StoreTooNew, match="x has version 9999"):
            upgrade(connection, "x")
    engine.dispose()


@pytest.mark.slow("fills a database")
async def test_an_upgrade_works_from_a_folder_with_a_percent_sign(old_place, tmp_path, monkeypatch):
    shutil.copytree(MIGRATIONS, tmp_path / "100%(x)s" / "migrations")
    monkeypatch.setattr(
        "interlock.store.database.upgrade.__file__", str(tmp_path / "100%(x)s" / "x.py")
    )

    await open_and_close(old_place)
