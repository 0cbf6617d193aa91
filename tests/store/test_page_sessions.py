"""Sessions of pages in a database: bounded, and without anything that opens one."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import pytest
from msgspec.structs import replace

from interlock.auth.page_session import IDLE, StoredCode, StoredSession
from interlock.store.database.database import open_database
from interlock.store.page_sessions import MAX_PER_USER, PageSessionStore

NOW = 1_800_000_000 * 1_000_000


def session(number: int = 0, user: str = "user:anna", at: int = NOW) -> StoredSession:
    digest = sha256(f"{user} {number}".encode()).digest()
    return StoredSession(
        id_hash=digest,
        page_key_hash=digest[::-1],
        user=user,
        key="k1",
        scopes=("admin:read", "mcp:*"),
        view="support",
        groups=("leads",),
        claims={"dept": ["x", 1]},
        created=at,
        last_used=at,
        expires=at + 10 * IDLE,
    )


async def test_stored_session_equals_the_session_read_back(place: str):
    database = await open_database(place)
    store, one, foreign = PageSessionStore(database), session(), session(user="user:berta")
    await store.add(one)
    await store.add(foreign)
    await store.touch(one.id_hash, NOW + 5)

    assert await store.get(one.id_hash) == replace(one, last_used=NOW + 5)
    assert [each.id for each in await store.of_user("user:anna")] == [one.id]
    await store.delete(one.id_hash)
    assert await store.get(one.id_hash) is None
    assert await store.of_user("user:berta") == [foreign]
    await database.close()


@pytest.mark.slow("fills a database")
async def test_ended_sessions_and_the_oldest_over_the_limit_are_deleted(place: str):
    database = await open_database(place)
    store = PageSessionStore(database)
    await store.add(session(user="user:gone", at=NOW - IDLE))
    for number in range(MAX_PER_USER + 2):
        await store.add(session(number, at=NOW + number))

    kept = await store.of_user("user:anna")
    assert len(kept) == MAX_PER_USER
    assert kept[-1].created == NOW + 2
    assert await store.of_user("user:gone") == []
    await database.close()


async def test_one_time_code_is_accepted_once_from_many_simultaneous_requests(place: str):
    database = await open_database(place)
    store, code = PageSessionStore(database), StoredCode(b"h", "user:local", ("mcp:*",), NOW)
    await store.add_code(code)

    taken = await asyncio.gather(*(store.take_code(b"h") for _ in range(5)))

    assert sorted(each.used for each in taken if each) == [False, True, True, True, True]
    await database.close()
