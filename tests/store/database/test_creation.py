"""Creation and expansion of databases, and refusal of those of other programs and versions."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from signal import SIGKILL

import pytest
from sqlalchemy import create_engine, text

from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Audit
from interlock.errors import StoreCorrupt, StoreError, StoreTooNew
from interlock.messages import UserMessage
from interlock.store import AuditRecord, ConversationStore, KeyStore, open_trail
from interlock.store.database import maintenance, schema_version
from interlock.store.database.creation import prepare
from interlock.store.database.sqlite_file import is_ready
from tests.store import later as later_tables
from tests.support.forked import run_forked

pytestmark = pytest.mark.usefixtures("created_databases")


async def open_and_close(place: str | Path) -> None:
    async with ConversationStore.open(place):
        pass


@pytest.fixture
async def old_place(new_place: str, change) -> str:
    """The location of a database from before there were versions."""
    await change(
        new_place,
        "CREATE TABLE conversations (id TEXT, title TEXT, model TEXT, created TEXT, updated TEXT)",
        "CREATE TABLE messages (conversation_id TEXT, position INTEGER, role TEXT, content TEXT,"
        " created TEXT)",
        "INSERT INTO messages VALUES ('old', 0, 'user', 'hello', '2024-05-06 07:08:09')",
    )
    return new_place


def way_out(place: str) -> str:
    is_server = "://" in place
    return "use another database or schema" if is_server else "move it away; a new one is created"


# Other versions


def made_by(version: str) -> list[str]:
    """Return statements that make a database that of another version."""
    return [
        f"UPDATE alembic_version SET version_num = '{version}'",
        f"UPDATE schema_compatibility SET compatible_from = '{version}'",
    ]


@asynccontextmanager
async def refused(place: str, dump, words: str, kind=StoreError) -> AsyncIterator[None]:
    """Run the block, which changes a database; then it is refused and stays as it is."""
    yield
    before = await dump(place)
    with pytest.raises(kind) as failure:
        await open_and_close(place)
    assert type(failure.value) is kind
    assert str(failure.value).endswith(words)
    assert "\n" not in str(failure.value)
    assert await dump(place) == before


OLD = " was made by a checkout of interlock before its first release: "


async def test_a_database_of_an_old_checkout_is_refused_and_not_changed(place: str, change, dump):
    async with ConversationStore.open(place) as store:
        await store.create("kept")
    for version in ("0001", "0019", "dev-0123456789abcdef"):
        async with refused(place, dump, OLD + way_out(place)):
            await change(place, *made_by(version))
        assert "://" in place or not is_ready(Path(place))


async def test_a_database_from_before_there_were_versions_is_refused(old_place: str, change, dump):
    async with refused(old_place, dump, OLD + way_out(old_place)):
        pass
    async with refused(old_place, dump, OLD + way_out(old_place)):
        await change(old_place, "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")


async def test_a_newer_database_is_refused_and_not_changed(place: str, change, dump):
    words = (
        " was made by a newer interlock (version 0100): upgrade interlock,"
        " or set INTERLOCK_DATABASE to another location"
    )
    await open_and_close(place)
    async with refused(place, dump, words, StoreTooNew):
        await change(place, *made_by("0100"))


async def test_a_newer_database_that_is_compatible_is_used_as_it_is(place: str, change, dump):
    """An old version restarts beside a newer schema during an upgrade of several gateways."""
    async with ConversationStore.open(place) as store:
        made = await store.create("kept")
    await change(
        place,
        "UPDATE alembic_version SET version_num = '0100'",
        "ALTER TABLE conversations ADD COLUMN colour VARCHAR NOT NULL DEFAULT 'red'",
        "ALTER TABLE changes ADD COLUMN reason VARCHAR",
        "CREATE TABLE later (id VARCHAR)",
    )
    assert "://" in place or is_ready(Path(place))
    async with ConversationStore.open(place) as store:
        assert [each.id for each in await store.list()] == [made.id]
        await store.append(made.id, UserMessage("hello"))
    async with open_trail(place, GatewayKey(bytes(range(32))), Audit()) as writer:
        await writer.append(AuditRecord("intent", "c1"))
    assert [row[0] for row in (await dump(place))["alembic_version"][1:]] == ["0100"]

    words = "upgrade interlock, or set INTERLOCK_DATABASE to another location"
    async with refused(place, dump, words, StoreTooNew):
        await change(place, "UPDATE schema_compatibility SET compatible_from = '0099'")


@pytest.mark.parametrize("version", ["0019", "0100"])
def test_a_file_of_another_version_keeps_every_byte(tmp_path: Path, version: str):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE conversations (id TEXT)")
        other.execute("CREATE TABLE messages (id TEXT)")
        other.execute("CREATE TABLE alembic_version (version_num TEXT)")
        other.execute("INSERT INTO alembic_version VALUES (?)", [version])
        other.commit()
    before = path.read_bytes()

    with pytest.raises(StoreError, match=f"{path} was made by "):
        asyncio.run(open_and_close(path))

    assert path.read_bytes() == before
    assert [*tmp_path.iterdir()] == [path]


# Other programs


def test_a_file_of_another_program_is_refused_and_not_changed(tmp_path: Path):
    path = tmp_path / "bookmarks.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()

    with pytest.raises(StoreCorrupt, match=r"another program's database \(table 'bookmarks'\)"):
        asyncio.run(open_and_close(path))

    assert path.read_bytes() == before


@pytest.mark.parametrize("table", ["messages", "pins", "alembic_version"])
async def test_a_table_of_another_program_is_refused(new_place: str, change, table: str):
    await change(new_place, f"CREATE TABLE {table} (version_num TEXT)")

    with pytest.raises(StoreCorrupt, match=rf"another program's database \(table '{table}'\)"):
        await open_and_close(new_place)


async def test_another_program_that_uses_alembic_is_not_taken_for_a_newer_interlock(
    new_place: str, change
):
    await change(
        new_place,
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
        "INSERT INTO alembic_version VALUES ('27c6a30d7c24')",
    )

    with pytest.raises(StoreCorrupt, match="another program's database"):
        await open_and_close(new_place)


async def test_another_programs_tables_with_our_names_are_refused(old_place, change):
    await change(old_place, "ALTER TABLE messages RENAME COLUMN content TO body")

    with pytest.raises(StoreCorrupt, match="another program's database"):
        await open_and_close(old_place)


async def test_a_database_of_a_server_may_have_tables_of_other_programs(postgres: str, change):
    await change(postgres, "CREATE TABLE bookmarks (url TEXT)")

    async with ConversationStore.open(postgres) as store:
        assert await store.list() == []


# Expansion


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> str:
    """Let this program have tables of a later version, which it returns."""
    later_tables.expand(monkeypatch.setattr)
    return later_tables.REVISION


async def test_an_older_database_is_expanded_when_it_is_opened(new_place, request, dump):
    async with ConversationStore.open(new_place) as running, KeyStore.open(new_place) as keys:
        made = await running.create("kept")
        await keys.create("anna")
        before = await dump(new_place)
        revision = request.getfixturevalue("later")
        assert "://" in new_place or not is_ready(Path(new_place))

        await asyncio.gather(*(open_and_close(new_place) for _ in range(4)))
        await running.append(made.id, UserMessage("hello"))  # as programs of the older version do
        await keys.create("berta")

    after = await dump(new_place)
    assert after.pop("later") == [("id",)]
    assert after["alembic_version"][1:] == [(revision,)]
    assert after["schema_compatibility"] == before["schema_compatibility"]
    assert after["keys"][0] == (*before["keys"][0], "colour")
    assert [each[-1] for each in after["keys"][1:]] == ["red", "red"]
    assert "://" in new_place or is_ready(Path(new_place))
    request.getfixturevalue("monkeypatch").undo()  # a program of the older version starts beside it
    async with ConversationStore.open(new_place) as store:
        assert [each.id for each in await store.list()] == [made.id]


async def test_a_database_whose_programs_would_be_excluded_is_expanded_on_request_only(
    place: str, later: str, monkeypatch: pytest.MonkeyPatch, dump
):
    monkeypatch.setattr(schema_version, "COMPATIBLE_FROM", later)
    words = "could not use any more after an upgrade: end them all, then run `interlock db upgrade`"
    async with refused(place, dump, words):
        pass

    added = (later_tables.REVISION, later_tables.ADDED)
    assert await maintenance.pending(place) == added
    assert await maintenance.upgrade(place) == added

    await open_and_close(place)
    assert await maintenance.upgrade(place) == (later_tables.REVISION, [])


async def test_expansion_interrupted_by_a_kill_is_completed_by_the_next_start(
    place: str, request: pytest.FixtureRequest, dump
):
    before = await dump(place)
    expanding = "from tests.store.later import expand\nexpand(setattr)\n"
    assert run_forked(expanding + KILLED_BEFORE_THE_COMMIT, place) == (-SIGKILL, "")
    assert await dump(place) == before

    revision = request.getfixturevalue("later")
    await open_and_close(place)
    assert (await dump(place))["alembic_version"][1:] == [(revision,)]


# Creation


async def test_a_failed_creation_changes_nothing(new_place: str, change, dump):
    await change(new_place, "CREATE VIEW plugin_installations AS SELECT 1 AS one")

    with pytest.raises(StoreError):
        await open_and_close(new_place)

    assert await dump(new_place) == {}
    await change(new_place, "DROP VIEW plugin_installations")
    await open_and_close(new_place)


KILLED_BEFORE_THE_COMMIT = """
import asyncio, os, sys
from interlock.store.database import database

prepare = database.prepare

def prepare_and_die(*arguments, **options):
    prepare(*arguments, **options)
    os.kill(os.getpid(), 9)

database.prepare = prepare_and_die
asyncio.run(database.open_database(sys.argv[1]))
"""


@pytest.mark.slow("starts a program")
async def test_database_creation_interrupted_by_a_kill_is_completed_by_the_next_start(
    new_place: str, dump
):
    code, output = run_forked(KILLED_BEFORE_THE_COMMIT, new_place)
    assert (code, output) == (-SIGKILL, "")

    async with ConversationStore.open(new_place) as store:
        assert await store.list() == []


async def test_a_user_without_rights_gets_one_error_and_no_tables(postgres: str, change, dump):
    schema = postgres.rpartition("=")[2]
    await change(
        postgres, "CREATE ROLE visitor LOGIN", f"GRANT USAGE ON SCHEMA {schema} TO visitor"
    )

    with pytest.raises(StoreError, match="does not grant this user the rights it needs"):
        await open_and_close(postgres.replace("interlock@", "visitor@"))

    assert await dump(postgres) == {}
    await change(postgres, "DROP OWNED BY visitor", "DROP ROLE visitor")


async def test_a_user_who_may_not_change_tables_is_told_of_the_upgrade_of_an_older_database(
    postgres: str, request: pytest.FixtureRequest, change
):
    await open_and_close(postgres)
    schema = postgres.rpartition("=")[2]
    await change(
        postgres,
        "CREATE ROLE clerk LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO clerk",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO clerk",
    )
    as_clerk = postgres.replace("interlock@", "clerk@")
    await open_and_close(as_clerk)
    request.getfixturevalue("later")

    with pytest.raises(StoreError, match="does not grant this user the rights it needs") as failure:
        await open_and_close(as_clerk)
    assert "`interlock db upgrade`" in failure.value.__notes__[0]

    await maintenance.upgrade(postgres)
    await change(postgres, f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO clerk")
    await open_and_close(as_clerk)
    await change(postgres, "DROP OWNED BY clerk", "DROP ROLE clerk")


def test_prepare_refuses_a_database_that_a_newer_program_has_created_in_the_meantime():
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        prepare(connection, "x")
        for statement in made_by("0100"):
            connection.execute(text(statement))

        with pytest.raises(StoreTooNew, match="x was made by a newer interlock"):
            prepare(connection, "x")
    engine.dispose()


def test_prepare_does_nothing_if_another_process_has_created_the_tables():
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        prepare(connection, "x")
        prepare(connection, "x")

        assert connection.scalar(text("SELECT count(*) FROM alembic_version")) == 1
    engine.dispose()
