"""Changes are noticed once, by readers in any process, whatever the order of commits."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import delete, event, func, select, text

from interlock.errors import StoreError
from interlock.store.database import changes
from interlock.store.database.changes import ChangeFeed, ChangeReader, note_change
from interlock.store.database.database import Database, Work, open_database
from interlock.store.database.tables import changes as table
from interlock.store.keys import KeyStore
from interlock.text.timestamps import now_micros


async def test_changed_key_is_reported_once(place: str):
    async with KeyStore.open(place) as gateway, KeyStore.open(place) as cli:
        old, _ = await cli.create("anna")
        assert await gateway.load() == [old]
        assert await gateway.changed() == []

        created, _ = await cli.create("berta")
        revoked = await cli.revoke(old.id)

        changed = await gateway.changed()
        assert {each.id: each for each in changed} == {created.id: created, old.id: revoked}
        assert await gateway.changed() == []


async def test_read_without_changes_is_one_statement(tmp_path: Path):
    """A gateway reads the changes of several kinds every second, also while it is idle."""
    database = await open_database(tmp_path / "a.db")
    reader = ChangeReader("keys")
    statements: list[str] = []
    await database.write(lambda connection: note_change(connection, "pins", "other"))
    await database.read(reader.read)
    event.listen(
        database._engine, "before_cursor_execute", lambda *told: statements.append(told[2])
    )
    assert await database.read(reader.read) == set()
    count = len(statements)
    await database.close()

    assert count == 1


async def test_older_copy_of_the_database_is_followed(place: str):
    database = await open_database(place)
    reader = ChangeReader("keys")

    async def write(connection):
        await note_change(connection, "keys", "old")
        await note_change(connection, "keys", "lost")

    async def restore(connection):
        await connection.execute(delete(table).where(table.c.id == 2))

    async def write_again(connection):
        await note_change(connection, "keys", "new")

    await database.write(write)
    await database.read(reader.read)
    await database.write(restore)
    assert await database.read(reader.read) <= {"old"}
    await database.write(write_again)
    found = await database.read(reader.read)
    await database.close()

    assert found == {"new"}


async def test_many_changes_are_all_read(place: str):
    database = await open_database(place)
    reader = ChangeReader("keys")

    async def write(connection):
        for number in range(150):
            await note_change(connection, "keys", str(number))
        await note_change(connection, "pins", "other")

    await database.read(reader.read)
    await database.write(write)
    read = await database.read(reader.read)
    await database.close()

    assert read == {str(number) for number in range(150)}


async def test_change_that_commits_after_many_later_ones_is_read(postgres_place: str):
    """A transaction can be held up for any time while other gateways go on writing."""
    database = await open_database(postgres_place)
    reader, latecomer = ChangeReader("keys"), await asyncpg.connect(postgres_place)
    await database.read(reader.read)
    held = latecomer.transaction()
    await held.start()
    await latecomer.execute("INSERT INTO changes (kind, key, at) VALUES ('keys', 'late', 0)")

    read = []
    for _ in range(3):
        added = "INSERT INTO changes (kind, key, at) SELECT 'keys', 'k' || g, 0 FROM "
        numbers = text(added + "generate_series(1, 100) AS g")
        await database.write(lambda each, numbers=numbers: each.execute(numbers))
        read.append(len(await database.read(reader.read)))
    await held.commit()
    late = await database.read(reader.read)
    again = await database.read(reader.read)
    await latecomer.close()
    await database.close()

    assert (read, late, again) == ([100, 100, 100], {"late"}, set())


async def test_change_is_read_after_the_database_was_copied_to_another_server(
    postgres_place: str,
):
    """The transactions of another server have lower numbers, and the rows keep the old ones."""
    database = await open_database(postgres_place)
    reader = ChangeReader("keys")
    await database.write(lambda each: note_change(each, "keys", "old"))
    await database.read(reader.read)
    assert reader._position is not None
    reader._position = reader._position._replace(running=2**40)  # as on the server before

    assert await database.read(reader.read) <= {"old"}
    assert reader.was_restored
    await database.write(lambda each: note_change(each, "keys", "new"))
    found = await database.read(reader.read)
    await database.close()

    assert found == {"new"}


async def test_old_changes_are_deleted_but_never_the_newest(
    place: str, monkeypatch: pytest.MonkeyPatch
):
    database = await open_database(place)
    now = [1_000 * changes.KEPT]
    monkeypatch.setattr(changes, "now_micros", lambda: now[0])
    for _ in range(3):
        await database.write(lambda each: note_change(each, "keys", "a"))
    now[0] += changes.KEPT + 1
    await changes.delete_old_changes(database)
    kept = await database.read(lambda each: each.execute(select(table.c.id)))
    await database.close()

    assert kept.all() == [(3,)]


async def test_feed_has_the_clock_of_the_server(postgres_place: str, monkeypatch):
    monkeypatch.setattr(changes, "POLL_EVERY", 0.01)
    hour = 3_600 * 1_000_000
    ahead = lambda: now_micros() + hour  # noqa: E731
    monkeypatch.setattr(changes, "now_micros", ahead)  # this machine's clock
    database, keys = await open_database(postgres_place), Followed()
    log = logging.getLogger("interlock")
    async with ChangeFeed(database).running() as feed, feed.follow("keys", keys.step, log, "keys"):
        await keys.quiet()
        assert abs(feed.now() - now_micros()) < hour / 2
    await database.close()


class NoChanges(Database):
    """A database in which nothing changes."""

    def __init__(self) -> None:
        self.fails = False

    async def read(self, work: Work[Any]) -> Any:
        if self.fails:
            raise StoreError("away")
        return set()


@pytest.mark.usefixtures("nothing_is_left")
async def test_follower_logs_the_first_error_in_a_row_and_continues_after_all(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(changes, "POLL_EVERY", 0)
    outcomes = [None, StoreError("away"), StoreError("away"), None, ValueError("bug"), None]
    told: list[bool] = []
    done = asyncio.Event()

    async def step(has_changed: bool) -> None:
        told.append(has_changed)
        if len(told) > len(outcomes):
            done.set()
        elif (error := outcomes[len(told) - 1]) is not None:
            raise error

    log = logging.getLogger("interlock")
    async with ChangeFeed(NoChanges()).running() as feed, feed.follow("keys", step, log, "keys"):
        await done.wait()

    logged = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert logged == [
        ("WARNING", "keys cannot be read: away"),
        ("ERROR", "changes of keys could not be used"),
    ]
    assert told[:7] == [True, False, True, True, False, True, False]


class Followed:
    """What a follower is told."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.is_quiet = asyncio.Event()

    async def step(self, has_changed: bool) -> None:
        (self.changed if has_changed else self.is_quiet).set()

    async def quiet(self) -> None:
        """Wait until nothing has changed, and forget what was."""
        self.changed.clear()
        self.is_quiet.clear()
        await self.is_quiet.wait()


async def test_change_wakes_followers_of_its_kind_and_a_restored_database_wakes_all(
    place: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(changes, "POLL_EVERY", 0.01)
    database, log = await open_database(place), logging.getLogger("interlock")
    keys, pins = Followed(), Followed()
    async with (
        ChangeFeed(database).running() as feed,
        feed.follow("keys", keys.step, log, "keys"),
        feed.follow("pins", pins.step, log, "pins"),
    ):
        await keys.changed.wait()  # perhaps before it was followed
        for key in ("a", "b"):
            await keys.quiet()
            await pins.quiet()
            await database.write(lambda each, key=key: note_change(each, "keys", key))
            await keys.changed.wait()
            assert not pins.changed.is_set()

        newest = select(func.max(table.c.id)).scalar_subquery()
        restore = delete(table).where(table.c.id == newest)
        await database.write(lambda each: each.execute(restore))
        await pins.changed.wait()
    await database.close()


async def test_change_that_is_found_while_the_clock_is_set_reaches_its_followers(
    place: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(changes, "POLL_EVERY", 3_600)
    database, keys = await open_database(place), Followed()
    feed = ChangeFeed(database)
    async with feed.follow("keys", keys.step, logging.getLogger("interlock"), "keys"):
        await feed.set_clock()
        await keys.changed.wait()  # perhaps before it was followed
        keys.changed.clear()
        await database.write(lambda each: note_change(each, "keys", "a"))
        await feed.set_clock()
        await keys.changed.wait()
    await database.close()


async def test_database_that_does_not_answer_wakes_all_followers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(changes, "POLL_EVERY", 0)
    database, keys = NoChanges(), Followed()
    log = logging.getLogger("interlock")
    async with ChangeFeed(database).running() as feed, feed.follow("keys", keys.step, log, "keys"):
        await keys.quiet()
        assert feed.is_answered
        keys.changed.clear()
        database.fails = True
        await keys.changed.wait()
        assert not feed.is_answered
