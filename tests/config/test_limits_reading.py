"""Reading limits: rates with units, and limits of a single key."""

from __future__ import annotations

from typing import Any

from interlock.config.gateway import KeyLimits, Rate
from interlock.config.limits_reading import key_limits, key_limits_problem
from tests.config.support import check_refusal, gateway
from tests.support.rows import each_row

COMMON = KeyLimits(rate=Rate(10, 1), burst=20, concurrent=4)
WRONG: list[tuple[Any, str, str]] = [
    ({"limits": {"perKey": {"rate": 20}}}, "limits.perKey.rate", "must be a rate such as"),
    ({"limits": {"perKey": {"rate": "0/s"}}}, "limits.perKey.rate", "must be a rate such as"),
    ({"limits": {"perKey": {"rate": "20/sec"}}}, "limits.perKey.rate", "must be a rate such as"),
    ({"limits": {"perKey": {"burst": 5}}}, "limits.perKey.burst", 'needs a "rate" beside it'),
    ({"limits": {"concurrent": 0}}, "limits.concurrent", "must be between 1 and 1,000,000,000"),
    ({"limits": {"queue": -1}}, "limits.queue", "must be between 0 and 1,000,000,000"),
    ({"limits": {"tools": {"refund": "1/s"}}}, "limits.tools.refund", 'must be "SERVER:NAME"'),
    ({"limits": {"tools": {"crm:x": 5}}}, "limits.tools['crm:x']", "must be a rate such as"),
    ({"results": {"max": "64k"}}, "results.max", "must be a whole number"),
    ({"results": {"tools": {"crm": 1}}}, "results.tools.crm", 'must be "SERVER:NAME"'),
    ({"results": {"views": {"x": 1}}}, "results.views.x", "is not a view; the views are none"),
    ({"keep": {"results": "1y"}}, "keep.results", "must be a number of seconds, or text"),
]


@each_row(("section", "place", "problem"), WRONG)
def test_invalid_limit_is_refused_with_line_and_place(section: Any, place: str, problem: str):
    check_refusal(section, place, problem)


def test_limits_of_a_key_replace_the_common_ones():
    found = key_limits({"concurrent": 1, "perDay": 5}, COMMON)

    assert found == KeyLimits(rate=Rate(10, 1), burst=20, concurrent=1, per_day=5)


def test_a_rate_of_a_key_comes_without_the_common_burst():
    assert key_limits({"rate": "5/s"}, COMMON).burst is None


def test_a_limit_that_a_newer_version_has_stored_is_ignored():
    assert key_limits({"rate": "5/fortnight", "colour": 1}, COMMON) == COMMON


@each_row("limits", [{"rate": 5}, {"burst": 0}, {"perDay": True}, {"perHour": 1}])
def test_wrong_limit_of_a_key_is_named(limits: dict[str, Any]):
    assert next(iter(limits)) in key_limits_problem(limits)


@each_row(
    ("text", "rate"),
    [("20/s", (20, 1)), ("600/min", (600, 60)), ("9/h", (9, 3_600)), ("1/day", (1, 86_400))],
)
def test_rate_is_parsed_with_its_unit(text: str, rate: tuple[int, int]):
    limits = gateway({"limits": {"perKey": {"rate": text}}}).gateway.limits

    assert limits.per_key.rate == Rate(*rate)
    assert str(limits.per_key.rate) == text
