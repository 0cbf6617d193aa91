"""Keys in memory: found without a database, ended soon after they are revoked."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.auth import key_format
from interlock.auth.key_ring import SERVED_FOR, KeyRing
from interlock.auth.stored_key import StoredKey
from interlock.errors import AuthUnavailable, StoreError, UnknownKey
from interlock.store.database.changes import ChangeFeed
from interlock.store.database.database import Database, Work, open_database
from interlock.store.keys import KeyStore
from tests.support.clock import SteppedLoop
from tests.support.rows import each_row

NOW = 1_800_000_000 * 1_000_000


class Source:
    """Keys in memory that a test can change, or whose database fails."""

    def __init__(self, *keys: StoredKey) -> None:
        self.keys = {each.id: each for each in keys}
        self.touched: list[Mapping[str, int]] = []
        self.looked_up: list[str] = []
        self.fails = False
        self.answers = asyncio.Event()  # look-ups wait for it
        self.answers.set()

    async def load(self) -> Sequence[StoredKey]:
        if self.fails:
            raise StoreError("the database is away")
        return list(self.keys.values())

    changed = load

    async def get(self, id: str) -> StoredKey:
        self.looked_up.append(id)
        await self.answers.wait()
        await self.load()
        if id not in self.keys:
            raise UnknownKey("no such key")
        return self.keys[id]

    async def touch(self, used: Mapping[str, int]) -> None:
        await self.load()
        self.touched.append(used)


class Changing(Database):
    """A database in which keys change all the time."""

    def __init__(self) -> None:
        pass

    async def read(self, work: Work[Any]) -> Any:
        return {"keys"}


class Clocks:
    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def wall(self) -> int:
        return NOW * 1_000 + int(self.now * 1_000_000_000)  # nanoseconds


def made(user: str = "anna", **fields: object) -> tuple[StoredKey, bytes]:
    key, id = key_format.generate()
    stored = StoredKey(id, key_format.digest(key), user, created=NOW, **fields)  # type: ignore[arg-type]
    return stored, key.encode()


def ring_of(source: Source, clocks: Clocks) -> tuple[KeyRing, list[str]]:
    ended: list[str] = []
    ring = KeyRing(source, on_end=ended.extend, clock=clocks.clock, wall=clocks.wall)
    return ring, ended


async def load_all(ring: KeyRing, source: Source) -> None:
    source.fails = True
    with pytest.raises(StoreError):
        await ring.refresh()
    source.fails = False
    await ring.refresh()


async def test_key_is_found_by_its_whole_text_only():
    stored, key = made(scopes=("mcp:*",), view="support")
    ring, _ = ring_of(Source(stored), Clocks())
    await ring.refresh()

    known = ring.find(key)

    assert known is not None
    principal = known.principal
    assert (principal.id, principal.key_id, principal.view) == ("user:anna", stored.id, "support")
    assert principal.scopes == {"mcp:*"}
    assert ring.find(key[:-1]) is None
    assert ring.find(key + b"x") is None
    assert ring.find(stored.hash) is None


async def test_owner_is_the_same_object_until_its_rights_change():
    stored, key = made()
    source = Source(stored)
    ring, _ = ring_of(source, Clocks())
    await ring.refresh()
    first = ring.find(key).principal  # type: ignore[union-attr]

    source.keys[stored.id] = replace(stored, last_used=NOW)
    await ring.refresh()
    assert ring.find(key).principal is first  # type: ignore[union-attr]

    source.keys[stored.id] = replace(stored, scopes=("mcp:time:*",))
    await ring.refresh()
    assert ring.find(key).principal.scopes == {"mcp:time:*"}  # type: ignore[union-attr]


@each_row(
    ("fields", "active"),
    [
        ({}, True),
        ({"expires": NOW + 1}, True),
        ({"expires": NOW}, False),
        ({"revoked": NOW - 5}, False),
        ({"expires": NOW, "replaced_by": "b"}, False),
    ],
)
async def test_expired_or_revoked_key_is_found_but_inactive(fields: dict[str, int], active: bool):
    stored, key = made(**fields)
    ring, _ = ring_of(Source(stored), Clocks())
    await ring.refresh()

    known = ring.find(key)

    assert known is not None
    assert ring.is_active(known) is active


async def test_key_that_expires_or_is_deleted_or_revoked_is_reported_once():
    clocks = Clocks()
    revoked, _ = made()
    expiring, _ = made(expires=NOW + 5_000_000)
    deleted, _ = made()
    ended_before, _ = made(revoked=NOW - 1)
    source = Source(revoked, expiring, deleted, ended_before)
    ring, ended = ring_of(source, clocks)
    await ring.refresh()
    ring.report_ended()
    assert ended == []

    source.keys[revoked.id] = replace(revoked, revoked=NOW)
    await ring.refresh()
    ring.report_ended()
    assert ended == [revoked.id]
    clocks.now = 6
    ring.report_ended()
    assert ended == [revoked.id, expiring.id]
    del source.keys[deleted.id]
    await load_all(ring, source)
    ring.report_ended()
    assert ended == [revoked.id, expiring.id, deleted.id]


def test_known_keys_are_valid_for_a_minute_while_the_database_is_unavailable(
    caplog: pytest.LogCaptureFixture,
):
    stored, key = made()
    source = Source(stored)

    async def use(loop: SteppedLoop) -> None:
        ring = KeyRing(source, clock=loop.time, wall=lambda: NOW * 1_000)
        async with ChangeFeed(Changing()).running() as feed, ring.running(feed):
            source.fails = True
            await asyncio.sleep(SERVED_FOR - 1)
            assert ring.find(key) is not None
            await asyncio.sleep(2)
            for text in (key, b"unknown"):
                with pytest.raises(AuthUnavailable):
                    ring.find(text)
            source.fails = False
            await asyncio.sleep(2)
            assert ring.find(key) is not None

    loop = SteppedLoop()
    with caplog.at_level(logging.WARNING):
        loop.run_until_complete(use(loop))
    loop.close()
    assert caplog.text.count("API keys cannot be read") == 1


def test_keys_are_followed_after_an_error_of_the_callback(caplog: pytest.LogCaptureFixture):
    first, _ = made()
    second, key = made()
    source = Source(first, second)

    def fail(_: Collection[str]) -> None:
        raise ValueError("a bug")

    async def use(loop: SteppedLoop) -> None:
        ring = KeyRing(source, on_end=fail, clock=loop.time, wall=lambda: NOW * 1_000)
        async with ChangeFeed(Changing()).running() as feed, ring.running(feed):
            for stored in (first, second):
                source.keys[stored.id] = replace(stored, revoked=NOW - 1)
                await asyncio.sleep(2)
            assert not ring.is_active(ring.find(key))  # type: ignore[arg-type]

    loop = SteppedLoop()
    loop.run_until_complete(use(loop))
    loop.close()
    assert caplog.text.count("the sessions of an ended key could not be ended") == 2


def test_last_use_is_written_once_a_minute_and_at_the_end():
    stored, key = made()
    source = Source(stored)

    async def use(loop: SteppedLoop) -> None:
        ring = KeyRing(
            source, clock=loop.time, wall=lambda: 1_000 * (NOW + int(loop.time() * 1_000_000))
        )
        async with ChangeFeed(Changing()).running() as feed, ring.running(feed):
            for _ in range(180):
                ring.is_active(ring.find(key))  # type: ignore[arg-type]
                await asyncio.sleep(1)
            assert len(source.touched) == 2
            ring.is_active(ring.find(key))  # type: ignore[arg-type]
        assert source.touched[-1] == {stored.id: NOW + 180_000_000}

    loop = SteppedLoop()
    loop.run_until_complete(use(loop))
    loop.close()


async def test_key_in_memory_needs_no_database_and_is_never_written():
    source = Source()
    ring, ended = ring_of(source, Clocks())
    await ring.refresh()
    key = ring.issue("local", ["mcp:*"])

    known = ring.find(key.encode())
    assert known is not None
    assert ring.is_active(known)
    await ring.write_uses()
    await load_all(ring, source)

    assert known.principal.id == "user:local"
    assert ring.find(key.encode()) is known
    assert (source.touched, ended) == ([], [])


@pytest.mark.slow("waits for a timeout")
async def test_revocation_in_another_process_ends_a_key_within_two_seconds(tmp_path):
    ended = asyncio.Event()
    ids: list[Collection[str]] = []

    def on_end(keys: Collection[str]) -> None:
        ids.append(keys)
        ended.set()

    database = await open_database(tmp_path / "k.db")
    store = KeyStore(database)
    async with KeyStore.open(tmp_path / "k.db") as cli:
        stored, key = await store.create("anna")
        ring = KeyRing(store, on_end=on_end)
        async with ChangeFeed(database).running() as feed, ring.running(feed):
            assert ring.is_active(ring.find(key.encode()))  # type: ignore[arg-type]
            later, second = await cli.create("berta")
            await cli.revoke(stored.id)
            await ended.wait()
            assert not ring.is_active(ring.find(key.encode()))  # type: ignore[arg-type]
            assert ring.is_active(ring.find(second.encode()))  # type: ignore[arg-type]
        assert ids == [{stored.id}]
        assert (await store.get(later.id)).last_used is not None
    await database.close()

    with closing(sqlite3.connect(tmp_path / "k.db")) as connection, connection:
        assert second not in "\n".join(connection.iterdump())


async def test_key_is_known_even_if_a_concurrent_refresh_received_its_change():
    stored, key = made()
    changes, go_on = [stored], asyncio.Event()

    class SlowSource(Source):
        async def changed(self) -> Sequence[StoredKey]:
            given = [*changes]
            changes.clear()
            if given:
                await go_on.wait()
            return given

    ring = KeyRing(SlowSource(), clock=Clocks().clock, wall=Clocks().wall)
    await ring.refresh()
    first = asyncio.create_task(ring.refresh())
    await asyncio.sleep(0)
    second = asyncio.create_task(ring.refresh())
    await asyncio.sleep(0)
    assert not second.done()
    go_on.set()
    await second

    assert ring.find(key) is not None
    await first


async def test_change_lost_by_a_failed_refresh_is_found_by_the_next_refresh():
    stored, key = made()
    other, _ = made("bert")

    class LosingSource(Source):
        async def changed(self) -> Sequence[StoredKey]:
            if self.fails:
                raise StoreError("read the position, and not the keys")
            return []

    source = LosingSource(stored)
    ring, ended = ring_of(source, Clocks())
    await ring.refresh()
    source.keys[stored.id] = replace(stored, revoked=NOW)
    source.fails = True
    await ring.use(other)
    assert [each.stored.id for each in ring.active()] == [stored.id, other.id]
    source.fails = False
    await ring.use(other)

    assert not ring.is_active(ring.find(key))  # type: ignore[arg-type]
    assert {*ended} == {stored.id, other.id}  # the other one was never stored
