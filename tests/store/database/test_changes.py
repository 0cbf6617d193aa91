"""Changes are noticed once, by readers in any process, whatever the order of commits."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, event, func, insert, select

from interlock.errors import StoreError
from interlock.store.database import changes
from interlock.store.database.changes import ChangeFeed, ChangeReader, note_change
from interlock.store.database.database import Database, Work, open_database
from interlock.store.database.tables import changes as table
from interlock.store.keys import KeyStore


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
    assert await database.read(reader.read) == set()
    await database.write(write_again)
    found = await database.read(reader.read)
    await database.close()

    assert found == {"new"}


@pytest.mark.slow("fills a database")
async def test_more_changes_than_the_overlap_are_all_read(place: str):
    database = await open_database(place)
    reader = ChangeReader("keys")

    async def write(connection):
        for number in range(3 * changes._OVERLAP):
            await note_change(connection, "keys", str(number))
        await note_change(connection, "pins", "other")

    await database.read(reader.read)
    await database.write(write)
    read = await database.read(reader.read)
    await database.close()

    assert read == {str(number) for number in range(3 * changes._OVERLAP)}


async def test_row_that_is_committed_after_a_higher_one_is_read(place: str):
    database = await open_database(place)
    reader = ChangeReader("keys")

    async def put(id: int) -> None:
        row = insert(table).values(id=id, kind="keys", key=f"k{id}", at=0)
        await database.write(lambda connection: connection.execute(row))

    await put(7)
    await database.read(reader.read)
    await put(9)
    assert await database.read(reader.read) == {"k9"}
    await put(8)
    assert await database.read(reader.read) == {"k8"}
    await database.close()


async def test_rows_are_pruned_after_a_day_but_never_the_newest(
    place: str, monkeypatch: pytest.MonkeyPatch
):
    database = await open_database(place)
    now = [1_000 * changes.KEPT]
    monkeypatch.setattr(changes, "now_micros", lambda: now[0])

    async def write(connection):
        await note_change(connection, "keys", "a")

    for _ in range(3):
        await database.write(write)
    now[0] += changes.KEPT + 1
    await database.write(write)
    kept = await database.read(lambda each: each.execute(select(table.c.id)))
    await database.close()

    assert kept.all() == [(4,)]


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


async def test_database_that_does_not_answer_wakes_all_followers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(changes, "POLL_EVERY", 0)
    database, keys = NoChanges(), Followed()
    log = logging.getLogger("interlock")
    async with ChangeFeed(database).running() as feed, feed.follow("keys", keys.step, log, "keys"):
        await keys.quiet()
        database.fails = True
        await keys.changed.wait()
