"""The gauges of the soak see a small leak, and no leak where there is only work."""

from __future__ import annotations

import random

import pytest

from tests.soak.__main__ import RESTS
from tests.soak.gauges import Gauge

CALLS = 50_000  # a minute
NOISE = 1.5  # what is open at one rest and not at another, or MB that come and go


def gauge(minutes: int, left_by_a_call: float) -> Gauge:
    """Make one that has looked at each rest of a run."""
    chance = random.Random(minutes)
    made = Gauge("things", lambda: calls * left_by_a_call + chance.uniform(0, NOISE))
    for rest in range(RESTS):
        calls = minutes * CALLS * rest // RESTS
        made.add(calls, at_rest=True)
    return made


@pytest.mark.parametrize("minutes", [3, 5, 20])
def test_gauge_ignores_values_that_come_and_go(minutes: int):
    made = gauge(minutes, 0)

    assert made.growth < made.limit
    assert made.line().endswith("ok")


@pytest.mark.parametrize("minutes", [3, 5, 20])
@pytest.mark.parametrize("one_of", [1_000, 20_000])
def test_gauge_reports_a_leak_of_one_call_in_many(minutes: int, one_of: int):
    made = gauge(minutes, 1 / one_of)

    assert made.growth > made.limit
    assert made.line().endswith("GROWS")


def test_gauge_of_object_counts_skips_samples_under_load():
    made = Gauge("things", lambda: 1.0)
    made.add(1, at_rest=False)

    assert made.seen == []


@pytest.mark.parametrize(("left_by_a_call", "verdict"), [(0.0, "ok"), (2e-5, "GROWS")])
def test_gauge_reports_memory_that_grows_beyond_the_limit(left_by_a_call: float, verdict: str):
    chance = random.Random(1)
    calls = 0
    memory = Gauge(
        "memory, MB", lambda: calls * left_by_a_call + chance.uniform(0, NOISE), 100_000, 1.0
    )
    for second in range(300):
        calls = second * CALLS // 60
        memory.add(calls, at_rest=False)

    assert memory.line().endswith(verdict)
