"""Audit records in a SQLite file whose disk is full, fails or loses a sync."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import AuditFailed, AuditUnavailable, StoreError
from interlock.store import AuditRecord, AuditWriter, ConversationStore
from tests.faults.failing_disk import failing_disk
from tests.store.audit_chains import INTENT, OUTCOME, Rows, check_chains, within_a_second

KEY = GatewayKey(bytes(range(32)))


async def test_a_body_that_is_not_utf_8_fails_no_other_record(sqlite: str, rows: Rows):
    async with AuditWriter.open(sqlite, key=KEY) as writer:
        wrong = writer.append(AuditRecord("intent", body=b"\xff"))
        await asyncio.gather(writer.append(INTENT), wrong)

    assert check_chains(await rows(sqlite)) == {writer.id: 2}


@pytest.mark.parametrize("kind", ["full", "broken", "locked"])
async def test_every_operation_of_the_disk_may_fail_once(sqlite: str, kind: str, rows: Rows):
    acknowledged = 0
    with failing_disk() as disk:
        async with AuditWriter.open(sqlite, key=KEY) as writer:
            for nth in range(1, 12):
                disk.arm(kind, nth)
                for _ in range(3):
                    try:
                        await writer.append(INTENT)
                        acknowledged += 1
                    except AuditUnavailable:
                        assert disk.failed
            disk.disarm()

    assert acknowledged > 20
    assert check_chains(await rows(sqlite)) == {writer.id: acknowledged}


async def test_after_a_failed_sync_every_append_fails_and_nothing_is_synced_again(
    sqlite: str, rows: Rows
):
    with failing_disk() as disk:
        async with (
            ConversationStore.open(sqlite) as store,
            AuditWriter.open(sqlite, key=KEY) as writer,
        ):
            await writer.append(INTENT)
            disk.arm("unsynced", 1)
            with pytest.raises(AuditFailed, match="the disk did not keep what was written"):
                await writer.append(INTENT)
            disk.arm("unsynced", 1_000)  # only counts
            for _ in range(3):
                writer.append_soon(OUTCOME)
                with pytest.raises(AuditFailed):
                    await writer.append(INTENT)
            with pytest.raises(StoreError, match="fsync failed"):
                await store.create()
        with pytest.raises(StoreError, match="fsync failed"):
            async with AuditWriter.open(sqlite, key=KEY):
                pass
        assert disk.count == 0

    found = await rows(sqlite)
    assert check_chains(found)[writer.id] in (1, 2)


async def test_records_of_concurrent_calls_share_the_syncs_of_the_disk(sqlite: str):
    with failing_disk() as disk:
        async with AuditWriter.open(sqlite, key=KEY) as writer:
            disk.arm("unsynced", 1_000)  # only counts
            await asyncio.gather(*(writer.append(INTENT) for _ in range(100)))
            syncs = disk.count

    assert 1 <= syncs <= 3


async def test_a_failed_sync_of_a_conversation_fails_audit_records_too(sqlite: str):
    with failing_disk() as disk:
        async with (
            ConversationStore.open(sqlite) as store,
            AuditWriter.open(sqlite, key=KEY) as writer,
        ):
            disk.arm("unsynced", 1)
            with pytest.raises(StoreError, match="fsync failed"):
                await store.create()
            with pytest.raises(AuditFailed):
                await writer.append(INTENT)


@pytest.mark.slow("waits for a timeout")
async def test_a_lock_of_another_process_fails_appends_within_a_second(sqlite: str, rows: Rows):
    async with AuditWriter.open(sqlite, key=KEY) as writer:
        with closing(sqlite3.connect(sqlite, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            appends = (within_a_second(writer.append(INTENT)) for _ in range(3))
            await asyncio.gather(*appends)
        await writer.append(INTENT)

    assert check_chains(await rows(sqlite)) == {writer.id: 1}


async def test_opening_a_database_that_refuses_records_fails(sqlite: str):
    async with ConversationStore.open(sqlite):
        pass
    with closing(sqlite3.connect(sqlite)) as other:
        other.execute("ALTER TABLE audit_heads RENAME TO missing")

    with pytest.raises(AuditUnavailable, match="no such table"):
        async with AuditWriter.open(sqlite, key=KEY):
            pass
