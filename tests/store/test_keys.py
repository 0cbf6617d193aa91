"""API keys are created, rotated and revoked, and only their hashes are stored."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from interlock.auth import key_format
from interlock.auth.stored_key import StoredKey
from interlock.errors import StoreError
from interlock.store import keys
from interlock.store.keys import KeyStore

DAY = 24 * 3600


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time in seconds; change the first item."""
    now = [1_800_000_000]
    monkeypatch.setattr(keys, "now_micros", lambda: now[0] * 1_000_000)
    return now


async def test_created_key_is_listed_without_its_secret(place: str, clock: list[int]):
    async with KeyStore.open(place) as store:
        stored, key = await store.create("anna", name="laptop", scopes=["mcp:read"], lifetime=DAY)
        listed = await store.list()

    assert listed == [stored]
    assert key_format.id_of(key) == stored.id
    assert stored.hash == key_format.digest(key)
    shown = stored.as_json(keys.now_micros())
    assert shown == {
        "id": stored.id,
        "user": "user:anna",
        "name": "laptop",
        "scopes": ["mcp:read"],
        "limits": {},
        "created": "2027-01-15T08:00:00.000Z",
        "expires": "2027-01-16T08:00:00.000Z",
        "state": "active",
    }


async def test_database_never_contains_a_key(tmp_path: Path):
    async with KeyStore.open(tmp_path / "k.db") as store:
        stored, key = await store.create("anna")
        _, second = await store.rotate(stored.id)

    with closing(sqlite3.connect(tmp_path / "k.db")) as database, database:
        dump = "\n".join(database.iterdump())
    assert key.rpartition("_")[2] not in dump
    assert second.rpartition("_")[2] not in dump


async def test_rotated_key_stays_valid_for_the_overlap(place: str, clock: list[int]):
    async with KeyStore.open(place) as store:
        old, _ = await store.create("anna", scopes=["mcp:*"], view="support")
        new, _ = await store.rotate(old.id, overlap=3600)
        old = await store.get(old.id)

    assert (new.user, new.scopes, new.view) == ("anna", ("mcp:*",), "support")
    assert old.replaced_by == new.id
    assert old.state((clock[0] + 3599) * 1_000_000) == "active"
    assert old.state((clock[0] + 3600) * 1_000_000) == "rotated"


async def test_revoked_key_cannot_be_rotated(place: str):
    async with KeyStore.open(place) as store:
        stored, _ = await store.create("anna")
        revoked = await store.revoke(stored.id)
        again = await store.revoke(stored.id)
        with pytest.raises(StoreError, match=f"key {stored.id} is revoked: create a new one"):
            await store.rotate(stored.id)

    assert revoked.revoked == again.revoked
    assert revoked.state(keys.now_micros()) == "revoked"


async def test_key_can_be_rotated_only_once(place: str):
    async with KeyStore.open(place) as store:
        stored, _ = await store.create("anna")
        await store.rotate(stored.id)
        with pytest.raises(StoreError, match="is rotated"):
            await store.rotate(stored.id)


async def test_unknown_key_is_an_error_that_names_it(place: str):
    async with KeyStore.open(place) as store:
        for change in (store.get, store.revoke, store.rotate):
            with pytest.raises(StoreError, match="no key 'nothing'"):
                await change("nothing")


async def test_last_use_is_recorded(place: str, clock: list[int]):
    async with KeyStore.open(place) as store:
        stored, _ = await store.create("anna")
        await store.touch({stored.id: clock[0] * 1_000_000})
        shown = (await store.get(stored.id)).as_json(keys.now_micros())

    assert shown["lastUsed"] == "2027-01-15T08:00:00.000Z"


def test_key_without_expiry_never_expires():
    stored = StoredKey(id="a", hash=b"", user="anna")
    assert stored.state(10**18) == "active"
