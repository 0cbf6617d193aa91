"""Rollups: counts of calls per minute, so that charts need not read the audit trail.

1. A writer of audit records updates its row for the current minute in the same transaction as the
   outcome or refusal. Each writer has its own rows, so writers never wait for each other.
2. A row is written with its whole new value, so that a repeated commit does not count twice.
3. `add_up` sums finished minutes into rows of `SPANS` minutes. So a chart over any period reads
   only a few rows of a suitable span for each of its points.
4. Durations are counted in a histogram of 32 logarithmic steps. Sums of histograms are exact, and
   percentiles are accurate to one step, which is a factor of 1.6.
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
# The longest duration of each step except the last, in milliseconds: 0.25 to 333,000.
BOUNDS = tuple(0.25 * 1.6**step for step in range(STEPS - 1))
SPANS = (5, 30, 180, 1_440)  # minutes; `add_up` writes rows for each of these spans
GRACE = 2  # minutes until a finished span is summed, because other machines' clocks may differ
MAX_KEPT = 20_000  # rows of the current minute that a writer keeps in memory
SPANS_AT_ONCE = 50  # spans that are read in one query
WRITTEN_AT_ONCE = 1_000  # rows that `add_up` and `purge` change in one transaction
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
    """The counts in a row. The histogram is one integer that packs 32 counts of 32 bits each."""

    calls: int = 0
    size: int = 0  # bytes of results
    histogram: int = 0

    def plus(self, calls: int, size: int, ms: bytes) -> Totals:
        """Return the sum of these totals and a row's counts."""
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
    """Return the outcome that a record counts as; "" if the record does not end a call."""
    if kind == "outcome":
        return {"ok": "ran", "cancelled": "stopped"}.get(status, "failed")
    if kind == "refused":
        if reason in _LIMITED:
            return "limited"
        return "held" if reason == "tool_quarantined" else "refused"
    return "failed" if kind == "unfinished" else ""


class RollupWriter:
    """The current minute's rows of one writer of audit records.

    Args:
        writer: The id of the writer.
        wall: Returns the time in seconds since 1970.
    """

    def __init__(self, writer: str, *, wall: Callable[[], float] = time) -> None:
        self._writer = self._name = writer
        self._wall = wall
        self._rows: dict[_Key, Totals] = {}  # the rows as they are in the database
        self._minute = 0
        self._restarts = 0

    def plan(self, records: Iterable[Row]) -> dict[_Key, Totals]:
        """Return the rows as these records change them; `keep` the rows after the commit."""
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
            # A tool name that a caller made up has no server. It gets no row of its own.
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
        if minute < self._minute:  # the clock was set back: its rows were dropped
            self._restart()
        self._minute = minute
        self._rows.clear()

    def _restart(self) -> None:
        """Drop all rows; count further calls in new rows, under a new writer name."""
        self._rows.clear()
        self._restarts += 1
        self._name = f"{self._writer}.{self._restarts}"


def upsert(changed: Mapping[_Key, Totals]) -> Statement:
    """Return the statement that writes the rows from `RollupWriter.plan`."""
    rows = []
    for at, (calls, size, histogram) in changed.items():
        rows.append((*at, calls, size, histogram.to_bytes(_BYTES, "little")))
    return _UPSERT, rows


# Upkeep


async def add_up(
    tables: AuditTables, *, is_first: bool = True, wall: Callable[[], float] = time
) -> None:
    """Write the sums of all spans that have ended since the last call.

    Args:
        is_first: Whether to rewrite the last sums, which another process may have left incomplete.
        wall: Returns the time in seconds since 1970.

    Raises:
        AuditUnavailable: The database does not answer; the next call continues the work.
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
    """Delete the rows of all minutes before `before`, in small transactions.

    Raises:
        AuditUnavailable: The database does not answer; the next call continues the work.
    """
    while oldest := await tables.fetch(_OLDEST, before, WRITTEN_AT_ONCE):
        await tables.write((_DELETE, [oldest[-1]]))
        await asyncio.sleep(PAUSE)
    for span in SPANS:
        while oldest := await tables.fetch(_OLDEST_SUMS, span, before, WRITTEN_AT_ONCE):
            await tables.write((_DELETE_SUMS, [(span, *oldest[-1])]))
            await asyncio.sleep(PAUSE)


async def rows_of(tables: AuditTables, span: int, since: int, until: int) -> list[Row]:
    """Return the rows for `span` minutes each (1 for single minutes) that begin within a period."""
    if span == 1:
        return await tables.fetch(_MINUTES, since, until)
    return await tables.fetch(_SUMS, span, since, until)


async def end_of_sums(tables: AuditTables, span: int) -> int:
    """Return the minute up to which the sums over `span` minutes have been written."""
    ((last,),) = await tables.fetch(_SUMMED, span)
    return 0 if last is None else int(last) + span


async def _next(tables: AuditTables, span: int, since: int) -> int | None:
    if span == 1:
        ((minute,),) = await tables.fetch(_NEXT_MINUTE, since)
    else:
        ((minute,),) = await tables.fetch(_NEXT_SUM, span, since)
    return None if minute is None else int(minute)
