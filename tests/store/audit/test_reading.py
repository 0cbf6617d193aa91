"""Calls by filters, newest first, with the status that their records show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from benchmarks import audit_pages
from interlock.auth.gateway_key import GatewayKey
from interlock.store import AuditReader, AuditRecord, AuditWriter, KeyStore
from interlock.store.audit import reading as audit_reading
from interlock.store.audit import writer as audit_module
from interlock.store.audit.reading import CallFilter
from interlock.store.database import database

KEY = GatewayKey(bytes(range(32)))

STATUSES = ("ok", "tool_error", "error", "timeout", "cancelled")
SECOND = 1_000_000


@pytest.fixture
async def trail(place: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """Write calls c0 … c9 of two users, one a second, with a refusal of each and one of a key."""
    now = [0]
    monkeypatch.setattr(audit_module, "now_micros", lambda: now[0])
    monkeypatch.setattr(audit_module, "time_ns", lambda: now[0] * 1_000)
    async with KeyStore.open(place) as store:
        berta, _ = await store.create("berta")
    async with AuditWriter.open(place, key=KEY) as writer:
        for number in range(10):
            now[0] = (10 + number) * SECOND
            user, key = ("user:anna", "k1") if number % 2 else ("user:berta", berta.id)
            names = (f"c{number}", user, key, "crm", f"crm:t{number % 3}")
            body = b'{"surface":"mcp","risk":"read","bytes":7}'
            await writer.append(AuditRecord("intent", *names, body=body))
            status = STATUSES[number % 5]
            reason = "upstream_timeout" if status == "timeout" else ""
            body = b'{"ms":1.5,"bytes":42}'
            if number < 9:
                await writer.append(
                    AuditRecord("outcome", *names, status=status, reason=reason, body=body)
                )
        now[0] = 30 * SECOND
        await writer.append(
            AuditRecord("refused", "c10", "user:anna", "k1", tool="crm:t0", reason="no_rule")
        )
        now[0] = 31 * SECOND
        await writer.append(AuditRecord("refused", reason="bad_credential"))
        now[0] = 32 * SECOND
        yield place + f" {berta.id}"


async def listed(trail: str, limit: int = 50, **wanted: object) -> list[str]:
    place, key = trail.split()
    if wanted.get("key") == "berta":
        wanted["key"] = key
    async with AuditReader.open(place) as reader:
        calls = await reader.calls(CallFilter(**wanted), limit=limit)  # type: ignore[arg-type]
    return [each.get("call", "-") for each in calls]


FILTERS: list[tuple[dict[str, Any], str]] = [
    ({}, "- c10 c9 c8 c7 c6 c5 c4 c3 c2 c1 c0"),
    ({"limit": 3}, "- c10 c9"),
    ({"user": "user:anna"}, "c10 c9 c7 c5 c3 c1"),
    ({"key": "berta"}, "c8 c6 c4 c2 c0"),
    ({"key": "k1", "tool": "crm:t1"}, "c7 c1"),
    ({"tool": "crm:t0"}, "c10 c9 c6 c3 c0"),
    ({"status": "ok"}, "c5 c0"),
    ({"status": "timeout"}, "c8 c3"),
    ({"status": "timeout", "user": "user:anna"}, "c3"),
    ({"status": "running"}, "c9"),
    ({"status": "unfinished"}, ""),
    ({"status": "refused"}, "- c10"),
    ({"reason": "no_rule"}, "c10"),
    ({"reason": "upstream_timeout"}, "c8 c3"),
    ({"reason": "upstream_timeout", "status": "ok"}, ""),
    ({"since": 17 * SECOND}, "- c10 c9 c8 c7"),
    ({"since": 12 * SECOND, "until": 14 * SECOND}, "c3 c2"),
    ({"user": "user:eve"}, ""),
]


@pytest.mark.slow("works through much data")
async def test_filters_select_calls_newest_first(trail: str):
    found = [" ".join(await listed(trail, **wanted)) for wanted, _ in FILTERS]

    assert found == [expected for _, expected in FILTERS]


async def test_successful_call_with_a_reason_is_found_by_each_filter(place: str):
    names = ("c1", "user:anna", "k1", "crm", "crm:t")
    async with AuditWriter.open(place, key=KEY) as writer:
        await writer.append(AuditRecord("intent", *names))
        await writer.append(AuditRecord("outcome", *names, status="ok", reason="input_required"))
        async with AuditReader.open(place) as reader:
            found = [
                [each["call"] for each in await reader.calls(wanted)]
                for wanted in (
                    CallFilter(reason="input_required"),
                    CallFilter(reason="input_required", user="user:anna", tool="crm:t"),
                    CallFilter(reason="input_required", status="ok", user="user:anna"),
                    CallFilter(status="ok", tool="crm:t"),
                )
            ]

    assert found == [["c1"]] * 4


async def test_call_object_joins_intent_and_outcome(trail: str):
    async with AuditReader.open(trail.split()[0]) as reader:
        (call,) = await reader.calls(CallFilter(status="timeout", user="user:anna"))
        records = await reader.records("c3")

    assert call == {
        "call": "c3",
        "at": "1970-01-01T00:00:13.000Z",
        "user": "user:anna",
        "key": "k1",
        "tool": "crm:t0",
        "risk": "read",
        "status": "timeout",
        "reason": "upstream_timeout",
        "ms": 1.5,
        "bytes": 42,
    }
    assert [each["kind"] for each in records] == ["intent", "outcome"]
    assert records[0]["surface"] == "mcp"
    assert len(bytes.fromhex(records[0]["hash"])) == 32


async def test_export_yields_every_record_of_a_time_once(trail: str):
    async with AuditReader.open(trail.split()[0]) as reader:
        all_records = [each async for piece in reader.export() for each in piece]
    async with AuditReader.open(trail.split()[0]) as reader:
        some = [each async for piece in reader.export(12 * SECOND, 14 * SECOND) for each in piece]

    assert [each["seq"] for each in all_records] == list(range(1, 22))
    assert [each["call"] for each in some] == ["c2", "c2", "c3", "c3"]


async def test_filters_use_indexes_instead_of_reading_every_record(tmp_path):
    place = str(tmp_path / "a.db")
    async with AuditWriter.open(place, key=KEY) as writer, AuditReader.open(place) as reader:
        await writer.append(AuditRecord("intent", "c1", "user:anna"))
        plans: list[str] = []
        fetch = reader._tables.fetch

        async def explain(sql: str, *parameters: object):
            plan = await fetch(f"EXPLAIN QUERY PLAN {sql}", *parameters)
            plans.append(" ".join(row[3] for row in plan))
            return await fetch(sql, *parameters)

        reader._tables.fetch = explain  # type: ignore[method-assign]
        for wanted in (
            CallFilter(),
            CallFilter(user="user:anna"),
            CallFilter(tool="crm:t"),
            CallFilter(since=1, until=2),
            CallFilter(status="ok"),
            CallFilter(status="ok", user="user:anna", tool="crm:t"),
            CallFilter(status="ok", reason="input_required"),
            CallFilter(status="timeout"),
            CallFilter(status="refused"),
            CallFilter(status="timeout", user="user:anna", tool="crm:t"),
            CallFilter(reason="no_rule"),
            CallFilter(reason="no_rule", user="user:anna", tool="crm:t"),
            CallFilter(status="running"),
            CallFilter(status="running", user="user:anna"),
        ):
            _, following = await reader.page(wanted, limit=1)
            await reader.page(replace(wanted, after=following), limit=1)

    assert plans
    assert not [plan for plan in plans if "SCAN audit " in f"{plan} " and "INDEX" not in plan]
    # Only records of the same microsecond, and those of one call, are sorted.
    sorted_ones = [each for each in plans if "TEMP B-TREE" in each and "audit_call" not in each]
    assert not [each for each in sorted_ones if "TEMP B-TREE FOR ORDER BY" in each]


async def test_trail_of_the_benchmark_fits_the_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(database, "COMMAND_TIMEOUT", database.COMMAND_TIMEOUT)  # put it back
    location = str(tmp_path / "audit.db")
    await audit_pages.make(location, 40)

    async with AuditReader.open(location) as reader:
        calls = await reader.calls(CallFilter(), limit=50)
    assert len(calls) == 20


@pytest.mark.slow("works through much data")
async def test_pages_that_end_before_they_are_full_lead_to_all_calls(
    trail: str, monkeypatch: pytest.MonkeyPatch
):
    whole = [" ".join(await listed(trail, **wanted)) for wanted, _ in FILTERS]
    monkeypatch.setattr(audit_reading, "SCAN_SECONDS", 0.0)
    monkeypatch.setattr(audit_reading, "FIRST_WINDOW", 2)
    pages, found, after = 0, list[str](), ""
    async with AuditReader.open(trail.split()[0]) as reader:
        while after or not pages:
            wanted = CallFilter(user="user:anna", tool="crm:t1", after=after)
            calls, after = await reader.page(wanted, limit=50)
            found += [each["call"] for each in calls]
            pages += 1

    assert [" ".join(await listed(trail, **wanted)) for wanted, _ in FILTERS] == whole
    assert found == ["c7", "c1"]
    assert pages > 2


@pytest.mark.parametrize("status", ["running", "unfinished"])
async def test_open_call_is_found_behind_many_finished_ones_in_bounded_steps(
    place: str, monkeypatch: pytest.MonkeyPatch, status: str
):
    monkeypatch.setattr(audit_reading, "SCAN_SECONDS", 0.0)
    monkeypatch.setattr(audit_reading, "FIRST_WINDOW", 10)
    async with AuditWriter.open(place, key=KEY) as writer, AuditReader.open(place) as reader:
        await writer.append(AuditRecord("intent", "stuck", "user:anna"))
        for number in range(30):
            kinds = ("intent", "outcome")
            await writer.append_all([AuditRecord(kind, f"c{number}") for kind in kinds])
        if status == "unfinished":
            monkeypatch.setattr(reader._tables, "is_alive", _is_dead)
        pages, found, after = 0, list[str](), ""
        while after or not pages:
            calls, after = await reader.page(CallFilter(status=status, after=after), limit=50)
            found += [f"{each['call']} {each['status']}" for each in calls]
            pages += 1

    assert found == [f"stuck {status}"]
    assert pages > 5


async def _is_dead(_: str) -> bool:
    return False
