"""Charts of calls over time, read from the rollups: calls, bytes and duration percentiles."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from interlock.store.audit import rollups
from interlock.store.audit.rollups import BITS, BOUNDS, NOTHING, SPANS, STEPS, Totals
from interlock.text.timestamps import rfc3339

if TYPE_CHECKING:
    from interlock.store.audit.postgres_tables import AuditTables

MAX_BUCKETS = 240
TOP = 20  # the largest number of lines in a chart
PERCENTILES = (50, 95, 99)
NAMES = [f"p{percent}" for percent in PERCENTILES]
MINUTE = 60 * 1_000_000  # microseconds

By = Literal["outcome", "tool", "key"]
_POSITIONS: dict[By, int] = {"tool": 3, "key": 4, "outcome": 5}  # positions in a row's key
_OUTCOME = _POSITIONS["outcome"]


class Line(Struct, frozen=True):
    """One line of a chart.

    Attributes:
        name: An outcome, a tool's address or a key's id; "" for calls without tool or key.
        calls: The number of calls in each bucket.
        bytes: The size of the results in each bucket.
        percentiles: The durations in each bucket at p50, p95 and p99, in milliseconds; None if the
            bucket has no call with a duration.
        total: The calls, bytes and percentiles over the whole period.
    """

    name: str
    calls: list[int]
    bytes: list[int]
    percentiles: dict[str, list[float | None]]
    total: dict[str, float | None]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "calls": self.calls,
            "bytes": self.bytes,
            **self.percentiles,
            "total": self.total,
        }


class Series(Struct, frozen=True):
    """A chart of calls over time.

    Attributes:
        by: The property by which calls are grouped into lines.
        since: The start of the first bucket, in microseconds since 1970.
        until: The end of the last bucket, in microseconds since 1970.
        step: The length of a bucket, in seconds.
        lines: The `TOP` lines with the most calls, in descending order.
        others: The sum of all further lines; None if there are no more.
        total: The sum of all lines.
    """

    by: By
    since: int
    until: int
    step: int
    lines: list[Line]
    others: Line | None
    total: Line

    def as_json(self) -> dict[str, Any]:
        shown = {
            "by": self.by,
            "since": rfc3339(self.since),
            "until": rfc3339(self.until),
            "step": self.step,
            "lines": [each.as_json() for each in self.lines],
            "total": self.total.as_json(),
        }
        return shown if self.others is None else shown | {"others": self.others.as_json()}


async def read_series(
    tables: AuditTables,
    by: By,
    since: int,
    until: int,
    *,
    buckets: int = MAX_BUCKETS,
    failures: bool = True,
) -> Series:
    """Read a chart of calls over time.

    Args:
        by: The property by which calls are grouped into lines.
        since: The start, in microseconds since 1970; the first bucket may begin earlier.
        until: The end, in microseconds since 1970; the last bucket may end later.
        buckets: The largest number of buckets, up to `MAX_BUCKETS`.
        failures: Whether percentiles include calls that failed or were cancelled.

    Raises:
        AuditUnavailable: The database does not answer.
    """
    first, width, count, span = _buckets(since // MINUTE, -(-until // MINUTE), buckets)
    last = first + count * width
    found: dict[str, dict[int, Totals]] = defaultdict(dict)
    position = _POSITIONS[by]
    for row in await _rows(tables, span, first, last):
        line, bucket = found[row[position]], (row[0] - first) // width
        *_, calls, size, ms = row
        is_timed = failures or row[_OUTCOME] == "ran"
        line[bucket] = line.get(bucket, NOTHING).plus(calls, size, ms if is_timed else b"")

    lines = sorted(
        found, key=lambda name: (-sum(each.calls for each in found[name].values()), name)
    )
    others = [found[name] for name in lines[TOP:]]
    return Series(
        by,
        first * MINUTE,
        last * MINUTE,
        width * 60,
        [_line(name, found[name], count) for name in lines[:TOP]],
        _line("", _merged(others), count) if others else None,
        _line("", _merged(list(found.values())), count),
    )


def _buckets(first: int, last: int, most: int) -> tuple[int, int, int, int]:
    """Return the first minute, minutes per bucket, number of buckets, and span of the rows."""
    width = max(1, -(-(last - first) // max(1, min(most, MAX_BUCKETS))))
    span = max(each for each in (1, *SPANS) if each <= 2 * width)
    width = -(-width // span) * span
    first = first // span * span
    return first, width, max(1, -(-(last - first) // width)), span


async def _rows(tables: AuditTables, span: int, first: int, last: int) -> list[tuple[Any, ...]]:
    """Return the rows of a span, or of shorter spans where its sums are not written yet."""
    rows = []
    for each in reversed((1, *SPANS)):
        if each > span:
            continue
        end = last if each == 1 else min(last, await rollups.end_of_sums(tables, each))
        if end > first:
            rows += await rollups.rows_of(tables, each, first, end)
            first = end
    return rows


def _merged(lines: list[dict[int, Totals]]) -> dict[int, Totals]:
    merged: dict[int, Totals] = {}
    for line in lines:
        for bucket, totals in line.items():
            merged[bucket] = merged.get(bucket, NOTHING).plus_totals(totals)
    return merged


def _line(name: str, line: dict[int, Totals], count: int) -> Line:
    by_bucket = [line.get(bucket, NOTHING) for bucket in range(count)]
    whole = _merged([{0: each} for each in line.values()]).get(0, NOTHING)
    durations = [percentiles(each.histogram) for each in by_bucket]
    return Line(
        name,
        [each.calls for each in by_bucket],
        [each.size for each in by_bucket],
        dict(zip(NAMES, map(list, zip(*durations, strict=True)), strict=True)),
        {
            "calls": whole.calls,
            "bytes": whole.size,
            **dict(zip(NAMES, percentiles(whole.histogram), strict=True)),
        },
    )


def percentiles(histogram: int) -> list[float | None]:
    """Return a histogram's p50, p95 and p99 in milliseconds; None for an empty histogram.

    Each percentile is accurate to one step of the histogram, a factor of 1.6.
    """
    if not histogram:
        return [None] * len(PERCENTILES)
    counts = memoryview(histogram.to_bytes(STEPS * BITS // 8, "little")).cast("I")
    sums = [*accumulate(counts)]
    return [_at_rank(percent / 100 * sums[-1], counts, sums) for percent in PERCENTILES]


def _at_rank(rank: float, counts: memoryview, sums: list[int]) -> float:
    step = bisect_left(sums, rank)
    upper = BOUNDS[step] if step < len(BOUNDS) else BOUNDS[-1] * 1.6
    return round(float(upper / 1.6 ** ((sums[step] - rank) / counts[step])), 2)
