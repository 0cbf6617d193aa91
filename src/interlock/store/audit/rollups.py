"""Rollups: counts of calls by the minute, so that charts never read the audit trail itself.

1. A writer of audit records adds to the row of the present minute in the transaction of the
   outcome or refusal. Each writer has rows of its own, so writers never wait for each other.
2. A row is written with its whole new value, so that a repeated commit counts once.
3. `add_up` adds finished minutes up to rows of `SPANS` minutes. A chart over any period reads a few
   rows of the right size for each of its points.
4. Durations are counts in 32 logarithmic steps. Their sums are exact, and percentiles are within
   one step, a factor of 1.6.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from operator import add
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from interlock.store.database.claims import Row, Statement

if TYPE_CHECKING:
    from interlock.store.audit.postgres_tables import AuditTables

STEPS = 32
# The longest duration of each step but the last, in milliseconds: 0.25 to 333,000.
BOUNDS = tuple(0.25 * 1.6**step for step in range(STEPS - 1))
SPANS = (5, 30, 180, 1_440)  # minutes of the rows that `add_up` writes
GRACE = 2  # minutes until a span is summed: other machines' clocks may differ
MAX_KEPT = 20_000  # rows of the present minute in memory
SPANS_AT_ONCE = 50  # spans that are read together
WRITTEN_AT_ONCE = 1_000  # rows in one transaction of the upkeep
PAUSE = 0.05  # seconds between two deletions, so that calls can write their records
BITS = 32  # bits of one count in a histogram

_BYTES = STEPS * BITS // 8
_LIMITED = frozenset(
    ("rate_limited", "overloaded", "tool_rate_limited", "quota_exceeded", "queue_timeout")
)
_UPSERT = (
    "INSERT INTO rollups (minute, writer, tenant, server, tool, key, outcome, calls, bytes, ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (minute, writer, tenant, server, tool, key, outcome)"
    " DO UPDATE SET calls = excluded.calls, bytes = excluded.bytes, ms = excluded.ms"
)
_UPSERT_SUM = (
    "INSERT INTO rollup_sums (span, minute, tenant, server, tool, key, outcome, calls, bytes, ms)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (span, minute, tenant, server, tool, key, outcome)"
    " DO UPDATE SET calls = excluded.calls, bytes = excluded.bytes, ms = excluded.ms"
)
_MINUTES = (
    "SELECT minute, tenant, server, tool, key, outcome, calls, bytes, ms FROM rollups"
    " WHERE minute >= ? AND minute < ?"
)
_SUMS = (
    "SELECT minute, tenant, server, tool, key, outcome, calls, bytes, ms FROM rollup_sums"
    " WHERE span = ? AND minute >= ? AND minute < ?"
)
_SUMMED = "SELECT max(minute) FROM rollup_sums WHERE span = ?"
_NEXT_MINUTE = "SELECT min(minute) FROM rollups WHERE minute >= ?"
_NEXT_SUM = "SELECT min(minute) FROM rollup_sums WHERE span = ? AND minute >= ?"
_OLDEST = "SELECT minute FROM rollups WHERE minute < ? ORDER BY minute LIMIT ?"
_DELETE = "DELETE FROM rollups WHERE minute <= ?"
_OLDEST_SUMS = (
    "SELECT minute FROM rollup_sums WHERE span = ? AND minute < ? ORDER BY minute LIMIT ?"
)
_DELETE_SUMS = "DELETE FROM rollup_sums WHERE span = ? AND minute <= ?"


class Totals(NamedTuple):
    """The counts of a row. The histogram is one integer of 32 counts of 32 bits each."""

    calls: int = 0
    size: int = 0  # bytes of results
    histogram: int = 0

    def plus(self, calls: int, size: int, ms: bytes) -> Totals:
        """Return these totals with those of a row."""
        histogram = self.histogram + int.from_bytes(ms, "little")
        return Totals(self.calls + calls, self.size + size, histogram)

    def plus_totals(self, other: Totals) -> Totals:
        return Totals(*map(add, self, other))


NOTHING = Totals()
_Key = tuple[int, str, str, str, str, str, str]  # the columns of the primary key
Changes = Mapping[_Key, Totals]


class _Measured(Struct):
    ms: float | None = None
    bytes: int = 0
    count: int = 1


_measured = msgspec.json.Decoder(_Measured).decode


def outcome_of(kind: str, status: str, reason: str) -> str:
    """Return the outcome that a record stands for; "" if it does not end a call."""
    if kind == "outcome":
        return {"ok": "ran", "cancelled": "stopped"}.get(status, "failed")
    if kind == "refused":
        if reason in _LIMITED:
            return "limited"
        return "held" if reason == "tool_quarantined" else "refused"
    return "failed" if kind == "unfinished" else ""


class RollupWriter:
    """The rows of the present minute of one writer of audit records.

    Args:
        writer: The id of the writer.
        wall: The wall clock, in seconds since 1970.
    """

    def __init__(self, writer: str, *, wall: Callable[[], float] = time) -> None:
        self._writer = self._name = writer
        self._wall = wall
        self._rows: dict[_Key, Totals] = {}  # the rows in the database
        self._minute = 0
        self._restarts = 0

    def plan(self, records: Iterable[Row]) -> dict[_Key, Totals]:
        """Return the rows that change with these records; `keep` them once they are committed."""
        minute = int(self._wall() // 60)
        if minute != self._minute:
            self._turn(minute)
        changed: dict[_Key, Totals] = {}
        known = self._rows
        for _, _, _, tenant, kind, _, _, key, server, tool, status, reason, body, _ in records:
            if kind == "intent":
                continue
            outcome = outcome_of(kind, status, reason)
            if not outcome:
                continue
            measured = _measured(body)
            # A made-up name of a tool has no server, and gets no row of its own.
            at = (minute, self._name, tenant, server, tool if server else "", key, outcome)
            calls, size, histogram = changed.get(at) or known.get(at) or NOTHING
            if measured.ms is not None:
                histogram += 1 << BITS * bisect_left(BOUNDS, measured.ms)
            changed[at] = Totals(calls + measured.count, size + measured.bytes, histogram)
        return changed

    def keep(self, changed: Mapping[_Key, Totals]) -> None:
        self._rows.update(changed)
        if len(self._rows) > MAX_KEPT:
            self._restart()

    def _turn(self, minute: int) -> None:
        if minute < self._minute:  # the clock was set back: these rows were dropped
            self._restart()
        self._minute = minute
        self._rows.clear()

    def _restart(self) -> None:
        """Drop all rows; further calls count in new rows, as if of another writer."""
        self._rows.clear()
        self._restarts += 1
        self._name = f"{self._writer}.{self._restarts}"


def upsert(changed: Mapping[_Key, Totals]) -> Statement:
    """Return the statement that writes rows of `RollupWriter.plan`."""
    rows = []
    for at, (calls, size, histogram) in changed.items():
        rows.append((*at, calls, size, histogram.to_bytes(_BYTES, "little")))
    return _UPSERT, rows


# Upkeep


async def add_up(
    tables: AuditTables, *, is_first: bool = True, wall: Callable[[], float] = time
) -> None:
    """Write the rows of all spans that have ended since the last call.

    Args:
        tables: The database.
        is_first: Whether to rewrite the last spans, which another process may have left partial.
        wall: The wall clock, in seconds since 1970.

    Raises:
        AuditUnavailable: The database does not answer; the next call continues.
    """
    now = int(wall() // 60) - GRACE
    for smaller, span in pairwise((1, *SPANS)):
        end = await end_of_sums(tables, span)
        since = end - span if is_first and end else end
        while (begin := await _next(tables, smaller, since)) is not None:
            begin = begin // span * span
            since = min(begin + SPANS_AT_ONCE * span, now // span * span)
            if since <= begin:
                break
            found = _sums(await rows_of(tables, smaller, begin, since), span)
            for first in range(0, len(found), WRITTEN_AT_ONCE):
                await tables.write((_UPSERT_SUM, found[first : first + WRITTEN_AT_ONCE]))


def _sums(rows: Iterable[Row], span: int) -> list[Row]:
    totals: dict[tuple[Any, ...], Totals] = {}
    for minute, *of, calls, size, ms in rows:
        at = minute // span * span, *of
        totals[at] = totals.get(at, NOTHING).plus(calls, size, ms)
    return [
        (span, *at, each.calls, each.size, each.histogram.to_bytes(_BYTES, "little"))
        for at, each in sorted(totals.items())
    ]


async def purge(tables: AuditTables, before: int) -> None:
    """Delete the rows of all minutes before this one, in small transactions.

    Raises:
        AuditUnavailable: The database does not answer; the next call continues.
    """
    while oldest := await tables.fetch(_OLDEST, before, WRITTEN_AT_ONCE):
        await tables.write((_DELETE, [oldest[-1]]))
        await asyncio.sleep(PAUSE)
    for span in SPANS:
        while oldest := await tables.fetch(_OLDEST_SUMS, span, before, WRITTEN_AT_ONCE):
            await tables.write((_DELETE_SUMS, [(span, *oldest[-1])]))
            await asyncio.sleep(PAUSE)


async def rows_of(tables: AuditTables, span: int, since: int, until: int) -> list[Row]:
    """Return the rows of minutes, or of longer spans, that begin in a period."""
    if span == 1:
        return await tables.fetch(_MINUTES, since, until)
    return await tables.fetch(_SUMS, span, since, until)


async def end_of_sums(tables: AuditTables, span: int) -> int:
    """Return the minute up to which all rows of a span are written."""
    ((last,),) = await tables.fetch(_SUMMED, span)
    return 0 if last is None else int(last) + span


async def _next(tables: AuditTables, span: int, since: int) -> int | None:
    if span == 1:
        ((minute,),) = await tables.fetch(_NEXT_MINUTE, since)
    else:
        ((minute,),) = await tables.fetch(_NEXT_SUM, span, since)
    return None if minute is None else int(minute)
