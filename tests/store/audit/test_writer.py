"""Audit records on SQLite and PostgreSQL: durable before their call, chained, never forked."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import AuditUnavailable
from interlock.store import AuditReader, AuditRecord, AuditWriter, ConversationStore
from interlock.store.audit import writer as writer_module
from interlock.store.audit.heads import FIRST_HASH, chain_hash
from tests.faults.failing_disk import failing_disk
from tests.store.audit_chains import INTENT, OUTCOME, Rows, check_chains, within_a_second
from tests.store.test_processes import run_processes

KEY = GatewayKey(bytes(range(32)))

# Records


async def test_append_returns_when_other_connections_see_the_record(place: str, rows: Rows):
    async with AuditWriter.open(place, key=KEY) as writer:
        await writer.append(INTENT)
        (row,) = await rows(place)

    assert row.pop("hash")
    assert abs(row.pop("at") / 1e6 - time.time()) < 60
    assert row == {
        "writer": writer.id,
        "seq": 1,
        "tenant": "",
        "kind": "intent",
        "call": "c1",
        "user": "user:anna",
        "key": "k1",
        "server": "crm",
        "tool": "crm:refund",
        "status": "",
        "reason": "",
        "body": '{"bytes":12}',
    }


async def test_writer_is_proven_by_each_write_and_writes_at_most_once_a_minute_while_idle(
    place: str, dump: Any, monkeypatch: pytest.MonkeyPatch
):
    now = [0.0]
    monkeypatch.setattr(writer_module, "monotonic", lambda: now[0])
    async with AuditWriter.open(place, key=KEY) as writer:
        await writer.append(INTENT)
        states = [await dump(place)]
        for now[0] in (59.0, 61.0, 62.0, 119.0):
            if not writer.is_proven:
                await writer.prove()
            assert writer.is_proven
            states.append(await dump(place))

    assert [before == after for before, after in pairwise(states)] == [True, False, True, True]
    assert len(states[-1]["audit"]) == len(states[0]["audit"])


async def test_writer_is_not_proven_after_a_failed_write_until_one_succeeds(sqlite_place: str):
    with failing_disk() as disk:
        async with AuditWriter.open(sqlite_place, key=KEY) as writer:
            disk.arm("full", 1, lasting=True)
            with pytest.raises(AuditUnavailable):
                await writer.append(INTENT)
            with pytest.raises(AuditUnavailable):
                await writer.prove()
            assert not writer.is_proven
            disk.disarm()
            await writer.prove()
            assert writer.is_proven


async def test_concurrent_appends_are_all_durable_and_in_one_chain(place: str, rows: Rows):
    async def call(writer: AuditWriter, number: int) -> None:
        for step in range(5):
            await writer.append(msgspec.structs.replace(INTENT, call=f"{number}-{step}"))
            writer.append_soon(msgspec.structs.replace(OUTCOME, call=f"{number}-{step}"))

    async with AuditWriter.open(place, key=KEY) as writer:
        await asyncio.gather(*(call(writer, number) for number in range(40)))
        found = await rows(place)
        assert sum(row["kind"] == "intent" for row in found) == 200

    found = await rows(place)
    assert check_chains(found) == {writer.id: 400}
    order = {(row["call"], row["kind"]): row["seq"] for row in found}
    for number in range(40):
        for step in range(5):
            call_id = f"{number}-{step}"
            assert order[call_id, "intent"] < order[call_id, "outcome"]


async def test_a_writer_stores_its_start_and_on_close_its_last_record(place: str, rows: Rows):
    async with AuditWriter.open(place, key=KEY) as writer:
        (head,) = await rows(place, "audit_heads")
        assert (head["writer"], head["ended"], head["seq"]) == (writer.id, None, 0)
        await writer.append(INTENT)
        writer.append_soon(OUTCOME)

    (head,) = await rows(place, "audit_heads")
    last = (await rows(place))[-1]
    assert head["ended"] >= head["started"] > 1_700_000_000_000_000
    assert (head["seq"], head["hash"]) == (2, last["hash"])
    assert (last["kind"], last["seq"]) == ("outcome", 2)


async def test_each_writer_has_a_chain_of_its_own(place: str, rows: Rows):
    async with AuditWriter.open(place, key=KEY) as one, AuditWriter.open(place, key=KEY) as other:
        await asyncio.gather(*(each.append(INTENT) for each in [one, other] * 10))

    assert check_chains(await rows(place)) == {one.id: 10, other.id: 10}


async def test_characters_that_no_database_stores_are_replaced_in_a_record(place: str, rows: Rows):
    async with AuditWriter.open(place, key=KEY) as writer:
        body = '{"🗼":1}'.encode()
        await writer.append(AuditRecord("refused", user="日本", tool="a\0b\ud800", body=body))

    found = await rows(place)
    check_chains(found)
    assert (found[0]["user"], found[0]["tool"], found[0]["body"]) == ("日本", "a�b�", '{"🗼":1}')


def test_a_hash_depends_on_every_column_the_number_and_the_previous_hash():
    columns = (1, *"abcdefghi")
    others = [(*columns[:place], "x", *columns[place + 1 :]) for place in range(len(columns))]
    hashes = [
        chain_hash(FIRST_HASH, 1, columns, "{}"),
        *(chain_hash(FIRST_HASH, 1, other, "{}") for other in others),
        chain_hash(FIRST_HASH, 1, columns, "{ }"),
        chain_hash(FIRST_HASH, 2, columns, "{}"),
        chain_hash(bytes(31) + b"x", 1, columns, "{}"),
    ]

    assert len(set(hashes)) == len(hashes) == 14


async def test_a_closed_writer_refuses_records(sqlite: str):
    async with AuditWriter.open(sqlite, key=KEY) as writer:
        pass

    with pytest.raises(AuditUnavailable, match="has been closed"):
        await writer.append(INTENT)
    with pytest.raises(AuditUnavailable, match="has been closed"):
        writer.append_soon(OUTCOME)


# Faults


async def test_a_full_disk_fails_appends_within_a_second_until_there_is_room(
    sqlite: str, rows: Rows, caplog: pytest.LogCaptureFixture
):
    with failing_disk() as disk:
        async with AuditWriter.open(sqlite, key=KEY) as writer:
            await writer.append(INTENT)
            disk.arm("full", 1, lasting=True)
            for _ in range(2):
                writer.append_soon(OUTCOME)
                with pytest.raises(AuditUnavailable, match="the disk is full: free some space"):
                    await writer.append(INTENT)
            await within_a_second(writer.append(INTENT))
            disk.disarm()
            await writer.append(INTENT)

    found = await rows(sqlite)
    assert check_chains(found) == {writer.id: 4}
    assert [row["kind"] for row in found] == ["intent", "outcome", "outcome", "intent"]
    failed, recovered = caplog.messages  # one line each, however many appends have failed
    assert failed.startswith("audit records cannot be written: ")
    assert recovered == "audit records are written again"


async def test_a_commit_whose_answer_is_lost_does_not_fork_the_chain(
    place: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
):
    async with AuditWriter.open(place, key=KEY) as writer:
        write = writer._tables.write

        async def write_without_answer(*statements: Any) -> None:
            await write(*statements)
            raise AuditUnavailable("no answer")

        monkeypatch.setattr(writer._tables, "write", write_without_answer)
        with pytest.raises(AuditUnavailable):
            await writer.append(INTENT)
        monkeypatch.undo()
        await writer.append(INTENT)

    assert check_chains(await rows(place)) == {writer.id: 2}


async def test_records_deleted_before_a_commit_fails_stay_missing(
    place: str, monkeypatch: pytest.MonkeyPatch
):
    async with AuditWriter.open(place, key=KEY) as writer:
        for _ in range(3):
            await writer.append(INTENT)
        await writer.tables.write(("DELETE FROM audit WHERE seq > 1", [()]))
        with monkeypatch.context() as failing:
            failing.setattr(writer.tables, "write", AsyncMock(side_effect=AuditUnavailable("no")))
            with pytest.raises(AuditUnavailable):
                await writer.append(INTENT)
        await writer.append(OUTCOME)

    async with AuditReader.open(place) as reader:
        problems = (await reader.verify(KEY)).problems
    assert [str(each) for each in problems] == [
        f"writer {writer.id}, record 2: is missing, with all records up to 3"
    ]


# Processes


@pytest.mark.slow("starts processes")
async def test_four_processes_writing_at_once_keep_separate_chains(place: str, rows: Rows):
    async with ConversationStore.open(place):
        pass
    run_processes("audit", place, 4, 25)

    lengths = check_chains(await rows(place))
    assert sorted(lengths.values()) == [100] * 4
    async with AuditReader.open(place) as reader:
        assert (await reader.verify(KEY)).problems == []


@pytest.mark.slow("starts processes")
async def test_killed_writers_leave_whole_chains_with_every_acknowledged_record(
    place: str, rows: Rows
):
    async with ConversationStore.open(place):
        pass
    acknowledged = run_processes("kill-audit", place, 5, 1).split()

    found = await rows(place)
    check_chains(found)
    assert set(acknowledged) <= {row["call"] for row in found}
    assert all(head["ended"] is None for head in await rows(place, "audit_heads"))
