"""Charts read the counted calls of their time, by line, with percentiles."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.auth.gateway_key import GatewayKey
from interlock.store import AuditReader, AuditWriter
from interlock.store.audit.rollup_series import MINUTE, percentiles, read_series
from interlock.store.audit.rollups import BITS, BOUNDS, add_up
from interlock.text.timestamps import now_micros
from tests.store.audit.test_rollups import Clock, ended, fill

KEY = GatewayKey(bytes(range(32)))


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("is_added_up", [False, True])
@pytest.mark.parametrize("hours", [5, 300])
async def test_chart_contains_all_calls_of_its_time_span_at_every_resolution(
    place: str, hours: int, is_added_up: bool
):
    begin = 25_000_000 // 1_440 * 1_440
    async with AuditWriter.open(place, key=KEY) as writer:
        await fill(writer, range(begin, begin + 300 * 60, 37))
        if is_added_up:
            await add_up(writer.tables, wall=Clock(begin + 290 * 60))
        series = await read_series(
            writer.tables, "outcome", begin * MINUTE, (begin + hours * 60) * MINUTE
        )

    width = series.step // 60
    assert 1 <= len(series.lines[0].calls) <= 240
    assert series.lines[0].calls == [
        sum(first <= minute < first + width for minute in range(begin, begin + 300 * 60, 37))
        for first in range(begin, series.until // MINUTE, width)
    ]
    assert series.total.total["p50"] == pytest.approx(10, rel=0.6)


async def test_a_chart_by_tool_has_the_largest_lines_and_the_sum_of_the_others(sqlite: str):
    begin = 25_000_000
    async with AuditReader.open(sqlite), AuditWriter.open(sqlite, key=KEY) as writer:
        for number in range(25):
            minutes = range(begin, begin + 1 + number)
            await fill(writer, minutes, tool=f"crm:{number}")
    async with AuditReader.open(sqlite) as reader:
        series = await reader.series("tool", begin * MINUTE, (begin + 60) * MINUTE, buckets=6)

    shown = series.as_json()
    assert [each["name"] for each in shown["lines"]] == [f"crm:{n}" for n in range(24, 4, -1)]
    assert shown["others"]["total"]["calls"] == 1 + 2 + 3 + 4 + 5
    assert shown["total"]["total"]["calls"] == sum(range(26))
    assert shown["step"] == 600
    assert shown["lines"][0]["calls"] == [10, 10, 5, 0, 0, 0]
    assert shown["lines"][0]["p95"][3] is None


async def test_percentiles_leave_failures_out_on_demand(sqlite: str):
    async with AuditWriter.open(sqlite, key=KEY) as writer:
        await writer.append(ended(ms=1.0))
        await writer.append(ended("timeout", ms=30_000.0))
        now = now_micros()
        read = {
            failures: await read_series(
                writer.tables, "key", now - MINUTE, now + MINUTE, failures=failures
            )
            for failures in (True, False)
        }

    assert [each.total.total["calls"] for each in read.values()] == [2, 2]
    assert read[True].total.total["p99"] == pytest.approx(30_000, rel=0.6)
    assert read[False].total.total["p99"] == pytest.approx(1, rel=0.6)


@given(st.lists(st.floats(0.1, 300_000), min_size=1, max_size=50))
def test_percentile_is_within_one_step_of_the_exact_value(durations: list[float]):
    histogram = sum(1 << BITS * bisect_left(BOUNDS, each) for each in durations)

    for percent, found in zip((50, 95, 99), percentiles(histogram), strict=True):
        rank = -(-percent * len(durations) // 100)
        exact = sorted(durations)[rank - 1]
        assert found is not None
        assert found / 1.61 <= max(exact, 0.25)
        assert exact <= found * 1.61
