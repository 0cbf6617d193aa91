"""Audit records on SQLite and PostgreSQL: durable before their call, chained, never forked."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from hashlib import sha256
from typing import Any

import asyncpg
import msgspec
import pytest

from interlock import Server
from interlock.calls import Around, Call, CallHandler, Outcome
from interlock.errors import AuditFailed, AuditUnavailable, StoreError
from interlock.store import AuditReader, AuditRecord, AuditWriter, ConversationStore
from interlock.store.audit import FIRST_HASH, chain_hash
from interlock.toolbox import Toolbox
from tests.faults.failing_disk import failing_disk
from tests.store.test_processes import run_processes

INTENT = AuditRecord("intent", "c1", "user:anna", "k1", "crm", "crm:refund", body=b'{"bytes":12}')
OUTCOME = AuditRecord("outcome", "c1", "user:anna", "k1", "crm", "crm:refund", status="ok")

Rows = Callable[..., Awaitable[list[dict[str, Any]]]]


@pytest.fixture
def rows(dump: Callable[[str], Awaitable[Any]]) -> Rows:
    """Return the rows of a table in a database, in order."""

    async def read(place: str, table: str = "audit") -> list[dict[str, Any]]:
        columns, *found = (await dump(place))[table]
        named = [dict(zip(columns, row, strict=True)) for row in found]
        return sorted(named, key=lambda row: (row["writer"], row["seq"]))

    return read


def check_chains(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Check every chain from its first record on; return the length of each by its writer."""
    lengths: dict[str, int] = {}
    previous = FIRST_HASH
    for row in rows:
        columns = list(row.values())
        writer, seq, *middle, body, hash = columns
        previous = previous if writer in lengths else FIRST_HASH
        lengths[writer] = lengths.get(writer, 0) + 1
        assert seq == lengths[writer]
        encoded = msgspec.json.encode(middle)
        expected = sha256(previous + seq.to_bytes(8, "big") + encoded + body.encode()).digest()
        assert hash == expected, f"record {seq} of {writer}"
        previous = hash
    return lengths


async def within_a_second(work: Awaitable[object]) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(AuditUnavailable):
        await work
    assert loop.time() - began < 1.0


# Records


async def test_append_returns_when_other_connections_see_the_record(place: str, rows: Rows):
    async with AuditWriter.open(place) as writer:
        await writer.append(INTENT)
        (row,) = await rows(place)

    assert row.pop("hash")
    assert abs(row.pop("at") / 1e6 - time.time()) < 60
    assert row == {
        "writer": writer.id,
        "seq": 1,
        "tenant": "default",
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


async def test_concurrent_appends_are_all_durable_and_in_one_chain(place: str, rows: Rows):
    async def call(writer: AuditWriter, number: int) -> None:
        for step in range(5):
            await writer.append(msgspec.structs.replace(INTENT, call=f"{number}-{step}"))
            writer.append_soon(msgspec.structs.replace(OUTCOME, call=f"{number}-{step}"))

    async with AuditWriter.open(place) as writer:
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
    async with AuditWriter.open(place) as writer:
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
    async with AuditWriter.open(place) as one, AuditWriter.open(place) as other:
        await asyncio.gather(*(each.append(INTENT) for each in [one, other] * 10))

    assert check_chains(await rows(place)) == {one.id: 10, other.id: 10}


async def test_characters_that_no_database_stores_are_replaced_in_a_record(place: str, rows: Rows):
    async with AuditWriter.open(place) as writer:
        body = '{"🗼":1}'.encode()
        await writer.append(AuditRecord("refused", user="日本", tool="a\0b\ud800", body=body))

    found = await rows(place)
    check_chains(found)
    assert (found[0]["user"], found[0]["tool"], found[0]["body"]) == ("日本", "a�b�", '{"🗼":1}')


async def test_a_body_that_is_not_utf_8_fails_for_its_caller_only(sqlite: str, rows: Rows):
    async with AuditWriter.open(sqlite) as writer:
        wrong = writer.append(AuditRecord("intent", body=b"\xff"))
        outcomes = await asyncio.gather(writer.append(INTENT), wrong, return_exceptions=True)

    assert [type(each) for each in outcomes] == [type(None), UnicodeDecodeError]
    assert check_chains(await rows(sqlite)) == {writer.id: 1}


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
    async with AuditWriter.open(sqlite) as writer:
        pass

    with pytest.raises(AuditUnavailable, match="has been closed"):
        await writer.append(INTENT)
    with pytest.raises(AuditUnavailable, match="has been closed"):
        writer.append_soon(OUTCOME)


# Faults


async def test_a_full_disk_fails_appends_within_a_second_until_there_is_room(
    sqlite: str, rows: Rows
):
    with failing_disk() as disk:
        async with AuditWriter.open(sqlite) as writer:
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


@pytest.mark.parametrize("kind", ["full", "broken", "locked"])
async def test_every_operation_of_the_disk_may_fail_once(sqlite: str, kind: str, rows: Rows):
    acknowledged = 0
    with failing_disk() as disk:
        async with AuditWriter.open(sqlite) as writer:
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


def audited(writer: AuditWriter) -> Around:
    """Return a layer that records each call before it is sent, and its outcome afterwards."""

    def around(handle: CallHandler) -> CallHandler:
        async def record_and_call(call: Call) -> Outcome:
            record = AuditRecord("intent", server=call.entry.server, tool=call.entry.address)
            await writer.append(record)
            outcome = await handle(call)
            status = "tool_error" if outcome.is_error else "ok"
            writer.append_soon(msgspec.structs.replace(record, kind="outcome", status=status))
            return outcome

        return record_and_call

    return around


async def test_a_full_disk_stops_a_call_before_its_effect(sqlite: str, rows: Rows):
    server, effects = Server("crm"), []

    @server.tool
    async def refund(order: int) -> str:
        effects.append(order)
        return "done"

    with failing_disk() as disk:
        async with (
            AuditWriter.open(sqlite) as writer,
            Toolbox({"crm": server}, around=[audited(writer)], environ={}) as toolbox,
        ):
            await toolbox.call("crm:refund", {"order": 1})
            disk.arm("full", 1, lasting=True)
            calls = (toolbox.call("crm:refund", {"order": order}) for order in range(100, 120))
            refused = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(each) for each in refused] == [AuditUnavailable] * 20
            assert effects == [1]
            disk.disarm()
            await toolbox.call("crm:refund", {"order": 2})

    assert effects == [1, 2]
    found = await rows(sqlite)
    check_chains(found)
    assert [row["kind"] for row in found] == ["intent", "outcome"] * 2


async def test_after_a_failed_sync_every_append_fails_and_nothing_is_synced_again(
    sqlite: str, rows: Rows
):
    with failing_disk() as disk:
        async with ConversationStore.open(sqlite) as store, AuditWriter.open(sqlite) as writer:
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
            async with AuditWriter.open(sqlite):
                pass
        assert disk.count == 0

    found = await rows(sqlite)
    assert check_chains(found)[writer.id] in (1, 2)


async def test_a_failed_sync_of_a_conversation_fails_audit_records_too(sqlite: str):
    with failing_disk() as disk:
        async with ConversationStore.open(sqlite) as store, AuditWriter.open(sqlite) as writer:
            disk.arm("unsynced", 1)
            with pytest.raises(StoreError, match="fsync failed"):
                await store.create()
            with pytest.raises(AuditFailed):
                await writer.append(INTENT)


async def test_a_lock_of_another_process_fails_appends_within_a_second(sqlite: str, rows: Rows):
    async with AuditWriter.open(sqlite) as writer:
        with closing(sqlite3.connect(sqlite, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            appends = (within_a_second(writer.append(INTENT)) for _ in range(3))
            await asyncio.gather(*appends)
        await writer.append(INTENT)

    assert check_chains(await rows(sqlite)) == {writer.id: 1}


async def test_a_commit_whose_answer_is_lost_does_not_fork_the_chain(
    place: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
):
    async with AuditWriter.open(place) as writer:
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


async def test_opening_a_database_that_refuses_records_fails(sqlite: str):
    async with ConversationStore.open(sqlite):
        pass
    with closing(sqlite3.connect(sqlite)) as other:
        other.execute("ALTER TABLE audit_heads RENAME TO missing")

    with pytest.raises(AuditUnavailable, match="no such table"):
        async with AuditWriter.open(sqlite):
            pass


async def test_a_lost_connection_is_replaced(postgres: str, rows: Rows, change):
    async with AuditWriter.open(postgres) as writer:
        await writer.append(INTENT)
        await change(
            postgres,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE application_name = 'interlock'",
        )
        with suppress(AuditUnavailable):  # if the client has not noticed yet
            await writer.append(INTENT)
        await writer.append(INTENT)

    assert check_chains(await rows(postgres))[writer.id] >= 2


async def test_a_table_locked_on_a_server_fails_appends_within_a_second(postgres: str, rows: Rows):
    async with AuditWriter.open(postgres) as writer:
        other = await asyncpg.connect(postgres)
        async with other.transaction():
            await other.execute("LOCK TABLE audit")
            await within_a_second(writer.append(INTENT))
        await other.close()
        await asyncio.gather(*(writer.append(INTENT) for _ in range(3)))

    assert check_chains(await rows(postgres)) == {writer.id: 3}


async def test_a_commit_is_synced_even_if_the_server_would_not_wait_for_it(postgres: str, change):
    await change(postgres, "ALTER ROLE interlock SET synchronous_commit = off")
    try:
        async with AuditWriter.open(postgres) as writer:
            setting = await writer._tables._connection.fetchval("SHOW synchronous_commit")
    finally:
        await change(postgres, "ALTER ROLE interlock RESET synchronous_commit")

    assert setting == "on"


# Processes


@pytest.mark.slow("starts processes")
async def test_four_processes_writing_at_once_keep_four_unforked_chains(place: str, rows: Rows):
    async with ConversationStore.open(place):
        pass
    run_processes("audit", place, 4, 25)

    lengths = check_chains(await rows(place))
    assert sorted(lengths.values()) == [100] * 4
    async with AuditReader.open(place) as reader:
        assert (await reader.verify(None)).problems == []


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
