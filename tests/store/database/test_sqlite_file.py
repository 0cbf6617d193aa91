"""The write-ahead log of a SQLite file: copied when it is long, untouched after a failed sync."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from interlock.errors import StoreError
from interlock.messages import UserMessage
from interlock.store import ConversationStore
from interlock.store.database import sqlite_file
from interlock.store.database.schema_version import REVISION
from tests.faults.failing_disk import failing_disk
from tests.store.filled import HELLO, fill, read, size

pytestmark = pytest.mark.usefixtures("created_databases")


async def test_waiting_writes_fail_when_a_sync_fails(sqlite: str):
    id = await fill(sqlite)
    with failing_disk() as disk:
        async with ConversationStore.open(sqlite) as store:
            disk.arm("unsynced", 1)
            writes = [store.append(id, HELLO) for _ in range(3)]
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
            assert [type(each) for each in outcomes] == [StoreError] * 3
            assert disk.count == 1
            assert await store.messages(id) == [HELLO]


@pytest.mark.slow("writes much")
async def test_a_long_log_is_copied_into_the_file(sqlite: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite_file, "LONGEST_LOG", 100_000)
    sizes = []
    id = await fill(sqlite)
    async with ConversationStore.open(sqlite) as store:
        for _ in range(60):
            await store.append(id, UserMessage("x" * 10_000))
            sizes.append(size(f"{sqlite}-wal"))

    assert 100_000 < max(sizes) < 300_000
    assert await read(sqlite, id) == 61


@pytest.mark.slow("writes much")
async def test_a_log_is_written_over_and_grows_no_longer(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite_file, "COMMITS", 16)
    sizes = []
    id = await fill(sqlite)
    async with ConversationStore.open(sqlite) as store:
        for _ in range(4 * sqlite_file.COMMITS):
            await store.append(id, HELLO)
            sizes.append(size(f"{sqlite}-wal"))

    assert sizes[-1] < 1.1 * sizes[2 * sqlite_file.COMMITS]


@pytest.mark.slow("fills a database")
async def test_automatic_checkpoints_of_sqlite_are_off(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
):
    """SQLite would not report a sync that fails then."""
    monkeypatch.setattr(sqlite_file, "LONGEST_LOG", 10**9)
    id = await fill(sqlite)
    async with ConversationStore.open(sqlite) as store:
        for _ in range(6):
            await store.append(id, UserMessage("x" * 1_000_000))
        assert size(f"{sqlite}-wal") > 6_000_000


async def test_a_failed_sync_of_the_file_is_reported_by_the_next_write(
    sqlite: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite_file, "LONGEST_LOG", 0)
    id = await fill(sqlite)
    with failing_disk() as disk:
        async with ConversationStore.open(sqlite) as store:
            of_the_file = 4  # after three syncs of the log
            disk.arm("unsynced", of_the_file)
            await store.append(id, HELLO)
            assert disk.failed == 1
            with pytest.raises(StoreError, match="fsync failed"):
                await store.append(id, HELLO)
            assert await store.messages(id) == [HELLO, HELLO]


@pytest.mark.slow("creates many databases")
async def test_a_failed_sync_during_creation_is_reported_and_not_retried(
    tmp_path: Path,
):
    with failing_disk() as disk:
        nth, failed = 0, 1
        while failed:
            nth += 1
            path = tmp_path / f"{nth}.db"
            disk.arm("unsynced", nth)
            with suppress(StoreError):  # the last sync has no later operation that could report it
                await fill(path)
            failed, synced = disk.failed, disk.count
            if failed:
                with pytest.raises(StoreError, match="fsync failed"):
                    await fill(path)
                assert disk.count == synced
    assert nth > 8


def test_only_a_whole_file_of_this_version_is_ready(sqlite: str):
    file = Path(sqlite)
    assert not sqlite_file.is_ready(file)  # there is none
    asyncio.run(fill(sqlite))
    assert sqlite_file.is_ready(file)
    with closing(sqlite3.connect(sqlite, isolation_level=None)) as database:
        database.execute("UPDATE alembic_version SET version_num = '0001'")
        database.execute("UPDATE schema_compatibility SET compatible_from = '0001'")
        assert not sqlite_file.is_ready(file)
        database.execute("DELETE FROM alembic_version")
        assert not sqlite_file.is_ready(file)
        database.execute("INSERT INTO alembic_version VALUES (?)", [REVISION])
        assert sqlite_file.is_ready(file)
    content = bytearray(file.read_bytes())
    content[len(content) // 2 :] = b"\0" * (len(content) - len(content) // 2)
    file.write_bytes(content)
    assert not sqlite_file.is_ready(file)
