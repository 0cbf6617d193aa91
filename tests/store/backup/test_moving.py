"""A copy from SQLite to PostgreSQL is whole, continued after a kill, and the only content there."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock.auth.gateway_key import FILE_NAME, GatewayKey
from interlock.config.gateway import Audit
from interlock.errors import ConfigError, StoreCorrupt, StoreError, StoreLocked
from interlock.store import AuditRecord, AuditWriter
from interlock.store.backup import moving
from interlock.store.backup.key_rotation import rotate_key
from interlock.store.backup.moving import Copied, copy_database
from interlock.store.database.database import open_database
from tests.store.backup.conftest import ANNA, Filled, check_content, hash_of, install_key, problems

Dump = Callable[[str], Awaitable[Any]]

pytestmark = pytest.mark.program("PostgreSQL")
only_sqlite = pytest.mark.parametrize("place", ["sqlite"], indirect=True)


async def copy(filled: Filled, url: str, lines: list[str] | None = None) -> Copied:
    path = Path(filled.location)
    told = [] if lines is None else lines
    return await copy_database(path, url, GatewayKey.load(path.parent), told.append)


@only_sqlite
async def test_copy_has_every_table_and_is_made_once(
    ended: Filled, postgres_place: str, dump: Dump, tmp_path: Path
):
    await rotate_key(ended.location, Audit(), hash_of)  # the files of kept results have new names
    before = await dump(ended.location)
    made = await copy(ended, postgres_place)
    after = await dump(postgres_place)

    # PostgreSQL has times with zones, further columns, and the bytes of kept results.
    others = {"conversations", "messages", "changes", "kept_results", "kept_chunks"}
    for table in after.keys() - others:
        assert sorted(map(repr, after[table])) == sorted(map(repr, before[table])), table
    assert {each: len(after[each]) for each in after} == {
        each: len(before[each]) + (each == "kept_chunks") for each in after
    }
    assert not made.is_old
    assert (await copy(ended, postgres_place)).is_old
    install_key(postgres_place, tmp_path / FILE_NAME)
    assert await problems(postgres_place) == []
    await check_content(ended, postgres_place)
    async with AuditWriter.open(postgres_place, key=GatewayKey.load(tmp_path)):
        pass
    with pytest.raises(StoreError, match="contains other data: use an empty database"):
        await copy(ended, postgres_place)


@only_sqlite
async def test_interrupted_copy_is_continued_unless_the_file_has_changed(
    ended: Filled, postgres_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key = GatewayKey.load(tmp_path)
    async with AuditWriter.open(ended.location, key=key) as writer:
        await writer.append_all([AuditRecord("intent", f"c{n}", ANNA) for n in range(30)])
    monkeypatch.setattr(moving, "ROWS", 10)
    put, left = moving._Copy._put, 0

    async def put_some(*arguments: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        await put(*arguments)

    monkeypatch.setattr(moving._Copy, "_put", put_some)
    lines: list[str] = []
    for some in (4, 1):
        left = some
        with pytest.raises(KeyboardInterrupt):
            await copy(ended, postgres_place, lines)
        with pytest.raises(StoreError, match="is not a whole copy yet: run `interlock db copy`"):
            await open_database(postgres_place)
    assert "continuing the interrupted copy" in lines
    async with AuditWriter.open(ended.location, key=key):
        pass
    left = 1_000
    await copy(ended, postgres_place, lines)

    assert "the file has changed since the interrupted copy: beginning again" in lines
    install_key(postgres_place, tmp_path / FILE_NAME)
    assert await problems(postgres_place) == []
    await check_content(ended, postgres_place)


@only_sqlite
async def test_copy_is_refused_while_a_gateway_runs(filled: Filled, postgres_place: str):
    with pytest.raises(StoreLocked, match=r"another process records calls in .*: end it first"):
        await copy(filled, postgres_place)


@only_sqlite
async def test_copy_needs_the_key_and_an_intact_file(
    ended: Filled, postgres_place: str, tmp_path: Path
):
    path = Path(ended.location)
    for key, kind in ((None, StoreError), (GatewayKey.random(), ConfigError)):
        with pytest.raises(kind, match="belongs to gateway key"):
            await copy_database(path, postgres_place, key, print)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE audit SET at = 'yesterday'")
        connection.commit()
    with pytest.raises(StoreCorrupt, match=r"the table audit of .* has a damaged row after 0 rows"):
        await copy(ended, postgres_place)
    for place, words in [(tmp_path, "is not a file"), (tmp_path / "none.db", "does not exist")]:
        with pytest.raises(StoreError, match=f"{words}: give the file of the database"):
            await copy_database(place, postgres_place, None, print)
    with pytest.raises(StoreError, match="is not a SQLite database"):
        await copy_database(tmp_path / FILE_NAME, postgres_place, None, print)
