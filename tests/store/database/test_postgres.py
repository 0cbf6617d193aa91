"""Connections to PostgreSQL that fail, and a driver that is not installed."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest

from interlock.errors import MissingExtra, StoreError
from interlock.messages import UserMessage
from interlock.store import ConversationStore

HELLO = UserMessage("hello")


async def fill(place: str | Path, count: int = 1) -> str:
    """Create a conversation of `count` messages; return its id."""
    async with ConversationStore.open(place) as store:
        made = await store.create("kept")
        await store.append(made.id, *[HELLO] * count)
        return made.id


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://me:s3cret@127.0.0.1:1/db", r"cannot connect to PostgreSQL 127.0.0.1:1/db: "),
        ("postgresql://me:s3cret@127.0.0.1:port/db", "not a valid postgresql:// URL"),
        ("postgresql://me:s3cret@/db?host=/nowhere", "cannot connect to PostgreSQL /nowhere/db: "),
        ("postgresql://me:s3cret@[::1/db", "not a valid postgresql:// URL"),
        ("postgres://me:s3cret@127.0.0.1:1/db?sslmode=s3cret", "not a valid postgresql:// URL"),
    ],
)
async def test_the_error_of_an_unreachable_server_does_not_contain_the_password(
    url: str, words: str
):
    with pytest.raises(StoreError, match=words) as failure:
        await fill(url)

    assert "s3cret" not in "".join(traceback.format_exception(failure.value))


async def test_a_missing_database_of_a_server_is_named(postgres: str):
    with pytest.raises(StoreError, match='database "nowhere" does not exist'):
        await fill(postgres.replace("/postgres?", "/nowhere?"))


async def test_a_missing_postgresql_driver_is_an_error_that_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    with pytest.raises(MissingExtra, match="needs the extra postgres: "):
        async with ConversationStore.open("postgresql://127.0.0.1:1/db"):
            pass
