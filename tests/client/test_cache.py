"""Answers that are kept for as long as the server allows."""

from __future__ import annotations

import pytest

from interlock.client import cache
from interlock.client.cache import MAX_ENTRIES, MAX_TTL, Cache
from tests.support.clock import SetClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    clock = SetClock()
    monkeypatch.setattr(cache, "monotonic", clock)
    return clock


def test_cached_value_expires_after_its_ttl(clock: SetClock):
    kept = Cache()
    kept.keep("value", 5.0, "tools/list")

    clock.now += 4.9
    assert kept.get("tools/list") == "value"
    clock.now += 0.1
    assert kept.get("tools/list") is None


@pytest.mark.parametrize("ttl", [0.0, -1.0])
def test_value_without_ttl_is_not_cached(clock: SetClock, ttl: float):
    kept = Cache()
    kept.keep("value", ttl, "tools/list")

    assert kept.get("tools/list") is None


def test_ttl_is_limited_to_a_day(clock: SetClock):
    kept = Cache()
    kept.keep("value", 1e300, "tools/list")

    clock.now += MAX_TTL - 1
    assert kept.get("tools/list") == "value"
    clock.now += 1
    assert kept.get("tools/list") is None


def test_values_are_cached_by_method_and_key(clock: SetClock):
    kept = Cache()
    kept.keep("a", 5.0, "resources/read", "file:a")
    kept.keep("b", 5.0, "resources/read", "file:b")
    kept.keep("list", 5.0, "resources/list")

    assert kept.get("resources/read", "file:a") == "a"
    assert kept.get("resources/read", "file:b") == "b"
    assert kept.get("resources/read") is None
    assert kept.get("resources/list", "file:a") is None


def test_forget_invalidates_one_entry_or_all_of_a_method(clock: SetClock):
    kept = Cache()
    for method, key in (("read", "a"), ("read", "b"), ("list", "")):
        kept.keep(key or "list", 5.0, method, key)

    kept.forget("read", "a")
    assert (kept.get("read", "a"), kept.get("read", "b")) == (None, "b")
    kept.forget("read")
    assert (kept.get("read", "b"), kept.get("list")) == (None, "list")
    kept.forget("read", "never there")


def test_full_cache_evicts_the_oldest_entry(clock: SetClock):
    kept = Cache()
    for number in range(MAX_ENTRIES + 1):
        kept.keep(number, 5.0, "read", str(number))

    assert kept.get("read", "0") is None
    assert kept.get("read", "1") == 1
    assert kept.get("read", str(MAX_ENTRIES)) == MAX_ENTRIES


def test_replacing_an_entry_evicts_no_other(clock: SetClock):
    kept = Cache()
    for number in range(MAX_ENTRIES):
        kept.keep(number, 5.0, "read", str(number))

    kept.keep("new", 5.0, "read", "7")

    assert kept.get("read", "7") == "new"
    assert kept.get("read", "0") == 0


def test_result_that_was_on_its_way_while_everything_was_forgotten_is_not_cached():
    kept = Cache()
    kept.keep("old", 5.0, "tools/list")
    asked = kept.changes

    kept.clear()
    kept.keep("late", 5.0, "tools/list", asked=asked)

    assert kept.get("tools/list") is None
