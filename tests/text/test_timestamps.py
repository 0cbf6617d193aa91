from __future__ import annotations

import time

from interlock.text.timestamps import now_micros, rfc3339


def test_time_is_written_in_utc_whatever_the_zone_of_the_machine(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
        assert rfc3339(1_795_344_000_999_999) == "2026-11-22T10:40:00.999Z"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_rfc3339_of_none_is_none():
    assert rfc3339(None) is None


def test_now_is_in_microseconds(monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 1_234_567)

    assert now_micros() == 1_234
