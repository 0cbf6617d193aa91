"""Counts of calls by the minute: written with the records, added up, read as charts, purged."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import AuditUnavailable
from interlock.store import AuditRecord, AuditWriter
from interlock.store.audit import rollups
from interlock.store.audit.rollup_series import MINUTE, read_series
from interlock.store.audit.rollups import SPANS, RollupWriter, add_up, upsert
from interlock.store.audit.upkeep import DAY, AuditUpkeep
from interlock.text.timestamps import now_micros

KEY = GatewayKey(bytes(range(32)))
CALL = AuditRecord("outcome", "c1", "user:anna", "k1", "crm", "crm:refund", "ok")

Rows = Callable[..., Awaitable[list[dict[str, Any]]]]


@pytest.fixture
def rows(dump: Callable[[str], Awaitable[Any]]) -> Rows:
    """Return the rows of the rollups in a database."""

    async def read(place: str, table: str = "rollups") -> list[dict[str, Any]]:
        columns, *found = (await dump(place))[table]
        return [dict(zip(columns, row, strict=True)) for row in found]

    return read


def ended(status: str = "ok", reason: str = "", ms: float = 1.0, **columns: Any) -> AuditRecord:
    body = msgspec.json.encode({"ms": ms, "bytes": 10})
    return msgspec.structs.replace(CALL, status=status, reason=reason, body=body, **columns)


def refused(reason: str, count: int = 1, **columns: Any) -> AuditRecord:
    body = msgspec.json.encode({"surface": "mcp", "count": count})
    return msgspec.structs.replace(
        CALL, kind="refused", status="", reason=reason, body=body, **columns
    )


async def test_each_outcome_and_refusal_is_counted_under_its_final_word(place: str, rows: Rows):
    async with AuditWriter.open(place, key=KEY) as writer:
        await writer.append(msgspec.structs.replace(CALL, kind="intent", status=""))
        for record in (
            *(ended("ok", ms=ms) for ms in (0.1, 3.0, 3.1)),
            *(ended(status) for status in ("tool_error", "error", "timeout")),
            ended("cancelled", "cancelled"),
            msgspec.structs.replace(CALL, kind="unfinished", status="unfinished"),
            *(refused(reason) for reason in ("denied_by_rule", "no_rule")),
            refused("rate_limited", count=40),
            refused("queue_timeout"),
            refused("tool_quarantined"),
        ):
            await writer.append(record)

    found = await rows(place)
    counts: Counter[str] = Counter()
    for row in found:
        assert (row["server"], row["tool"], row["key"]) == ("crm", "crm:refund", "k1")
        counts[row["outcome"]] += row["calls"]
    assert counts == {
        "ran": 3,
        "failed": 4,
        "stopped": 1,
        "refused": 2,
        "limited": 41,
        "held": 1,
    }
    assert sum(row["bytes"] for row in found if row["outcome"] == "ran") == 30


async def test_a_name_that_a_caller_made_up_gets_no_row_of_its_own(sqlite: str, rows: Rows):
    async with AuditWriter.open(sqlite, key=KEY) as writer:
        for number in range(5):
            await writer.append(refused("unknown_tool", server="", tool=f"made up {number}"))

    assert {row["tool"] for row in await rows(sqlite)} == {""}


@pytest.mark.slow("waits for a timeout")
async def test_records_that_are_not_committed_are_counted_once_when_they_are(
    sqlite: str, rows: Rows
):
    async with AuditWriter.open(sqlite, key=KEY) as writer:
        await writer.append(ended())
        with closing(sqlite3.connect(sqlite, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            writer.append_soon(ended())
            with pytest.raises(AuditUnavailable):
                await writer.append(refused("no_rule"))
        await writer.append(ended())

    outcomes = Counter({row["outcome"]: row["calls"] for row in await rows(sqlite)})
    assert outcomes["ran"] == 3
    assert not outcomes["refused"]


async def test_writers_at_the_same_time_share_no_rows(place: str):
    async with AuditWriter.open(place, key=KEY) as one, AuditWriter.open(place, key=KEY) as other:
        for _ in range(2):
            await one.append(ended())
            await other.append(ended())
        now = now_micros()
        series = await read_series(one.tables, "outcome", now - MINUTE, now + MINUTE)

    assert series.total.total["calls"] == 4


class Clock:
    """A wall clock, in seconds."""

    def __init__(self, minute: int) -> None:
        self.minute = minute

    def __call__(self) -> float:
        return self.minute * 60.0


def row_of(record: AuditRecord) -> tuple[Any, ...]:
    of = (record.user, record.key, record.server, record.tool, record.status, record.reason)
    return "w", 1, 0, "default", record.kind, record.call, *of, record.body.decode(), b""


async def fill(writer: AuditWriter, minutes: range, **columns: Any) -> None:
    """Count one call of 10 ms that ran in each of these minutes."""
    clock = Clock(0)
    counted = RollupWriter(writer.id, wall=clock)
    changed = {}
    for clock.minute in minutes:
        changed |= counted.plan([row_of(ended(ms=10.0, **columns))])
    await writer.tables.write(upsert(changed))


async def test_a_clock_that_is_set_back_loses_no_counts(sqlite: str, rows: Rows):
    clock = Clock(1_000)
    counted = RollupWriter("w", wall=clock)
    async with AuditWriter.open(sqlite, key=KEY) as writer:
        for clock.minute in (1_000, 1_001, 1_000, 1_000, 1_001):
            changed = counted.plan([row_of(ended())])
            await writer.tables.write(upsert(changed))
            counted.keep(changed)

    assert sum(row["calls"] for row in await rows(sqlite)) == 5


# Upkeep


@pytest.mark.slow("fills a database")
async def test_old_rows_are_deleted_with_the_records(place: str, rows: Rows):
    now = now_micros()
    begin = now // MINUTE - 3 * 1_440
    async with AuditWriter.open(place, key=KEY) as writer:
        await fill(writer, range(begin, begin + 3 * 1_440, 30))
        await add_up(writer.tables)
        await AuditUpkeep(writer, KEY, 86_400.0).purge(now)

    before = (now - DAY) // DAY * DAY // MINUTE
    for table in ("rollups", "rollup_sums"):
        found = {row["minute"] for row in await rows(place, table)}
        assert found
        assert min(found) >= before


async def test_charts_and_their_upkeep_read_no_whole_table(sqlite: str):
    """A plan of SQLite says "SCAN" where it reads a whole table or index."""
    async with AuditWriter.open(sqlite, key=KEY):
        pass
    with closing(sqlite3.connect(sqlite)) as connection:
        for name, sql in vars(rollups).items():
            if name.startswith("_") and isinstance(sql, str) and " FROM rollup" in sql:
                plan = connection.execute(f"EXPLAIN QUERY PLAN {sql}", [1] * sql.count("?"))
                assert all("SCAN" not in row[-1] for row in plan), name


def spans() -> Iterator[tuple[int, int]]:
    yield from zip((1, *SPANS), SPANS, strict=False)


def test_each_chart_span_consists_of_whole_shorter_spans():
    assert all(longer % shorter == 0 for shorter, longer in spans())
