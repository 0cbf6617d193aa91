"""A trail over its life: started, killed, signed, copied and purged; it stays whole."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Audit
from interlock.errors import AuditFailed
from interlock.store import AuditReader, AuditRecord, AuditWriter, open_trail
from interlock.store.audit import upkeep as audit_upkeep
from interlock.store.audit import writer as audit_module
from interlock.store.audit.copy_reading import read_copy
from interlock.store.audit.postgres_tables import PostgresAudit
from interlock.store.audit.reading import CallFilter
from interlock.store.audit.upkeep import DAY, AuditUpkeep
from interlock.store.audit.verification import Verification
from tests.faults.failing_disk import failing_disk

KEY = GatewayKey(bytes(range(32)))
INTENT = AuditRecord("intent", "c1", "user:anna", "k1", "crm", "crm:refund")
OUTCOME = AuditRecord("outcome", "c1", "user:anna", "k1", "crm", "crm:refund", status="ok")
ABANDONED = """
import asyncio, sys
from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Audit
from interlock.store import AuditRecord, open_trail

async def main():
    async with open_trail(sys.argv[1], GatewayKey(bytes(range(32))), Audit()) as writer:
        for number in range(3):
            await writer.append(AuditRecord("intent", f"c{number}", "user:anna", tool="crm:refund"))
        await writer.append(AuditRecord("outcome", "c0", "user:anna", status="ok"))
        writer.sign_soon()
        await writer.append(AuditRecord("refused", "c1", "user:anna", reason="audit_unavailable"))
        await writer.signed()
        print(writer.id, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""

Rows = Callable[..., Awaitable[list[dict[str, Any]]]]


@pytest.fixture
def rows(dump: Callable[[str], Awaitable[Any]]) -> Rows:
    """Return the rows of a table in a database."""

    async def read(place: str, table: str = "audit") -> list[dict[str, Any]]:
        columns, *found = (await dump(place))[table]
        return [dict(zip(columns, row, strict=True)) for row in found]

    return read


async def verify(place: str, copy: Path | None = None) -> Verification:
    async with AuditReader.open(place) as reader:
        return await reader.verify(KEY, read_copy([copy], KEY) if copy else None)


async def test_trail_begins_with_started_and_ends_with_stopped(place: str, rows: Rows):
    async with open_trail(place, KEY, Audit(), about={"version": "1.2"}) as writer:
        await writer.append(INTENT)
        writer.append_soon(OUTCOME)

    found = sorted(await rows(place), key=lambda row: row["seq"])
    assert [row["kind"] for row in found] == ["started", "intent", "outcome", "stopped"]
    assert found[0]["body"] == '{"version":"1.2"}'
    assert (await verify(place)).problems == []


@pytest.fixture
def killed(place: str) -> str:
    return kill(place)


def kill(place: str) -> str:
    """Kill a program that has one finished, one refused and one running call; return its writer."""
    process = subprocess.Popen(
        [sys.executable, "-c", ABANDONED, place], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    writer = process.stdout.readline().strip()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return writer


@pytest.mark.slow("kills a process")
async def test_start_after_a_kill_marks_the_running_call_and_closes_the_chain(
    place: str, killed: str, rows: Rows
):
    async with AuditReader.open(place) as reader:
        calls = {each["call"]: each["status"] for each in await reader.calls(CallFilter())}
    assert calls == {"c0": "ok", "c1": "refused", "c2": "unfinished"}

    async with open_trail(place, KEY, Audit()):
        (row,) = [row for row in await rows(place) if row["kind"] == "unfinished"]
        heads = {head["writer"]: head for head in await rows(place, "audit_heads")}
    assert (row["call"], row["user"], row["tool"]) == ("c2", "user:anna", "crm:refund")
    assert row["writer"] != killed
    assert msgspec.json.decode(row["body"]) == {"writer": killed}
    assert heads[killed]["ended"] is not None
    assert heads[killed]["seq"] == 6

    async with open_trail(place, KEY, Audit()):
        assert sum(row["kind"] == "unfinished" for row in await rows(place)) == 1
    assert (await verify(place)).problems == []


@pytest.mark.slow("kills a process")
async def test_running_gateways_close_the_chain_of_a_killed_one_once(
    place: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(audit_upkeep, "SIGN_EVERY", 0.05)
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(open_trail(place, KEY, Audit()))
        killed = await asyncio.to_thread(kill, place)
        heads: dict[str, Any] = {}
        while heads.get(killed) is None:
            heads = {head["writer"]: head["ended"] for head in await rows(place, "audit_heads")}
            await asyncio.sleep(0)
        assert [writer for writer, ended in heads.items() if ended is not None] == [killed]
    found = [row["call"] for row in await rows(place) if row["kind"] == "unfinished"]
    assert found == ["c2"]
    assert (await verify(place)).problems == []


async def test_writer_that_lost_its_lock_is_dead_only_if_it_does_not_connect_again(
    postgres_place: str, rows: Rows, change: Any
):
    """A database that restarts drops all locks, and idle writers do not notice."""
    place, looks = postgres_place, PostgresAudit.LOOKS_UNTIL_DEAD

    async def ended() -> Any:
        heads = {each["writer"]: each["ended"] for each in await rows(place, "audit_heads")}
        return heads[idle.id]

    async def disconnect() -> None:
        lock = int(idle.id, 36)
        await change(
            place,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'"
            f" AND classid = {lock >> 32} AND objid = {lock & (2**32 - 1)}",
        )

    async with AuditWriter.open(place, key=KEY) as idle, AuditWriter.open(place, key=KEY) as other:
        await idle.append(INTENT)
        upkeep = AuditUpkeep(other, KEY, 1e9)
        await disconnect()
        for _ in range(looks - 1):
            await upkeep.close_dead_writers(after=looks)
        await idle.renew()
        for _ in range(looks):
            await upkeep.close_dead_writers(after=looks)
        assert await ended() is None

        await disconnect()  # and it stays away
        for _ in range(looks):
            await upkeep.close_dead_writers(after=looks)
        assert await ended() is not None
        await idle.renew()
        await idle.append(OUTCOME)
        assert await ended() is None
    assert (await verify(place)).problems == []


@pytest.mark.slow("kills a process")
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE audit SET hash = 'x' WHERE seq = 6",
        "UPDATE audit_heads SET open_seq = 'x'",
        "UPDATE audit_heads SET base_seq = x'ff'",
        "DELETE FROM audit WHERE seq > 3",
        "UPDATE audit SET call = 'c7', \"user\" = 'user:boss' WHERE call = 'c2'",
        "INSERT INTO audit SELECT writer, 7, at, tenant, kind, 'c7', 'user:boss', key, server,"
        " tool, status, reason, body, hash FROM audit WHERE kind = 'intent' LIMIT 1",
    ],
)
async def test_gateway_starts_beside_a_damaged_chain_of_a_killed_writer_and_names_it(
    place: str, killed: str, change: str, rows: Rows, caplog: pytest.LogCaptureFixture
):
    with closing(sqlite3.connect(place)) as database, database:
        database.execute(change)

    async with open_trail(place, KEY, Audit()) as writer:
        await writer.append(INTENT)

    assert f"records of writer {killed} were changed" in caplog.text
    assert "unfinished" not in {row["kind"] for row in await rows(place)}
    assert {each.writer for each in (await verify(place)).problems} == {killed}


async def test_running_writer_is_not_taken_for_dead(place: str, rows: Rows):
    async with open_trail(place, KEY, Audit()) as first:
        await first.append(INTENT)
        async with open_trail(place, KEY, Audit()):
            pass
        async with AuditReader.open(place) as reader:
            assert (await reader.calls(CallFilter()))[0]["status"] == "running"
        first.append_soon(OUTCOME)

    assert "unfinished" not in {row["kind"] for row in await rows(place)}
    assert (await verify(place)).problems == []


def test_closed_writer_leaves_no_lock_file(tmp_path: Path):
    async def use() -> None:
        async with open_trail(tmp_path / "a.db", KEY, Audit()):
            assert any("a.db-writer-" in name for name in names())

    def names() -> list[str]:
        return [each.name for each in tmp_path.iterdir()]

    asyncio.run(use())
    assert sorted(names()) == ["a.db", "audit-copy"]


async def test_end_of_a_chain_is_signed_every_thousand_records_and_on_demand(
    place: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(audit_module, "SIGN_RECORDS", 10)
    async with AuditWriter.open(place, key=KEY) as writer:
        for _ in range(9):
            await writer.append(INTENT)
        assert (await rows(place, "audit_heads"))[0]["seq"] == 0
        await writer.append(INTENT)
        await writer.signed()
        (head,) = await rows(place, "audit_heads")
        assert (head["seq"], head["signature"] is None) == (10, False)
        await writer.append(OUTCOME)
        writer.sign_soon()
        await writer.signed()
        assert (await rows(place, "audit_heads"))[0]["seq"] == 11
    assert (await verify(place)).problems == []


async def test_copy_holds_every_record_only_if_it_is_configured(tmp_path: Path):
    for number, settings in enumerate((Audit(copy=str(tmp_path / "copy")), Audit())):
        place = tmp_path / f"{number}" / "a.db"
        place.parent.mkdir()
        async with open_trail(place, KEY, settings) as writer:
            await writer.append(INTENT)

    (full,), (ends,) = (tmp_path / "copy").iterdir(), (tmp_path / "1" / "audit-copy").iterdir()
    kinds = [
        [msgspec.json.decode(line)["kind"] for line in file.read_bytes().splitlines()]
        for file in (full, ends)
    ]
    assert kinds == [["head", "started", "intent", "stopped", "head"], ["head", "head"]]
    assert (await verify(str(tmp_path / "0" / "a.db"), full.parent)).problems == []
    assert (await verify(str(tmp_path / "1" / "a.db"), ends.parent)).problems == []


async def test_copy_that_cannot_be_written_stops_no_call(tmp_path: Path, caplog):
    (tmp_path / "file").touch()
    copy = tmp_path / "file" / "copy"
    async with open_trail(tmp_path / "a.db", KEY, Audit(copy=str(copy))) as writer:
        for _ in range(5):
            await writer.append(INTENT)

    assert caplog.text.count("cannot be written: Not a directory") == 1


# Retention


@pytest.mark.slow("fills a database")
async def test_whole_days_are_deleted_and_the_rest_verifies(
    place: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
):
    now = [1_800_000_000 * 1_000_000 // DAY * DAY + DAY // 2]
    monkeypatch.setattr(audit_module, "now_micros", lambda: now[0])
    monkeypatch.setattr(audit_module, "time_ns", lambda: now[0] * 1_000)
    async with AuditWriter.open(place, key=KEY) as over:
        for _ in range(30):
            await over.append(INTENT)
    async with AuditWriter.open(place, key=KEY) as writer:
        upkeep = AuditUpkeep(writer, KEY, 10 * 86_400)
        for _ in range(20):
            for _ in range(30):
                writer.append_soon(INTENT)
            await writer.append(OUTCOME)
            now[0] += DAY

        assert await upkeep.purge(now[0]) == 30 + 10 * 31
        assert await upkeep.purge(now[0]) == 0

        left = await rows(place)
        assert min(row["at"] for row in left) == now[0] - 10 * DAY
        assert len(left) == 10 * 31 + 1
        (head,) = await rows(place, "audit_heads")
        assert (head["writer"], head["base_seq"]) == (writer.id, 310)
    checkpoint = next(row for row in await rows(place) if row["kind"] == "checkpoint")
    body = msgspec.json.decode(checkpoint["body"])
    assert (body["records"], body["ends"][over.id], body["ends"][writer.id]) == (340, 30, 310)
    verification = await verify(place)
    assert (verification.problems, verification.records) == ([], 311)


@pytest.mark.parametrize("change", ["at = 1", "at = 1, seq = seq + 10", "at = 1, tool = 'a'"])
async def test_records_that_were_changed_are_kept_for_the_verification(
    place: str, change: str, monkeypatch: pytest.MonkeyPatch
):
    now = [1_000 * DAY]
    monkeypatch.setattr(audit_module, "now_micros", lambda: now[0])
    monkeypatch.setattr(audit_module, "time_ns", lambda: now[0] * 1_000)
    async with AuditWriter.open(place, key=KEY) as writer:
        await writer.append(INTENT)
        now[0] += 20 * DAY
        for _ in range(4):
            await writer.append(OUTCOME)
        await writer.tables.write((f"UPDATE audit SET {change} WHERE seq IN (2, 3)", [()]))
        upkeep = AuditUpkeep(writer, KEY, 10 * 86_400)

        assert await upkeep.purge(now[0]) == 1
    assert 2 in {each.seq for each in (await verify(place)).problems}


@pytest.mark.slow("fills a database")
async def test_records_are_written_between_the_small_transactions_of_a_purge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now, pauses = [1_000 * DAY], 0

    async def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1
        await writer.append(INTENT)

    monkeypatch.setattr(audit_module, "now_micros", lambda: now[0])
    monkeypatch.setattr(audit_module, "time_ns", lambda: now[0] * 1_000)
    async with AuditWriter.open(str(tmp_path / "a.db"), key=KEY) as writer:
        for _ in range(1_000):
            writer.append_soon(INTENT)
        await writer.append(OUTCOME)
        now[0] += 100 * DAY
        monkeypatch.setattr(audit_upkeep, "asyncio", SimpleNamespace(sleep=pause))
        assert await AuditUpkeep(writer, KEY, 86_400).purge(now[0]) == 1_001

    assert pauses == 6  # after 200 records each


# Failures


async def test_failed_sync_is_reported_once(tmp_path: Path):
    failed: list[bool] = []
    with failing_disk() as disk:
        async with open_trail(
            tmp_path / "a.db", KEY, Audit(), on_failed=lambda: failed.append(True)
        ) as writer:
            disk.arm("unsynced", 1)
            for _ in range(3):
                with pytest.raises(AuditFailed):
                    await writer.append(INTENT)
    assert failed == [True]
