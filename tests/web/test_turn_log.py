"""The events of a turn that are kept: what a client gets that was away."""

from __future__ import annotations

import pytest

from interlock.web import turn_log
from interlock.web.turn_log import TurnLog


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> TurnLog:
    """Return a log that keeps three events."""
    monkeypatch.setattr(turn_log, "MAX_EVENTS", 3)
    return TurnLog()


def test_old_tokens_are_joined_into_one_event_without_losing_text(log: TurnLog):
    log.append({"type": "started"})
    for word in ("a", "b", "c", "d"):
        log.append({"type": "token", "content": word})
    events = log.since(1)

    assert events is not None
    assert "".join(event.fields["content"] for event in events) == "abcd"
    assert (events[0].fields["from"], events[0].seq, log.seq) == (2, 5, 5)


def test_place_within_joined_tokens_or_before_dropped_events_has_no_events_since(log: TurnLog):
    log.append({"type": "started"})
    for word in ("a", "b", "c", "d"):
        log.append({"type": "token", "content": word})

    assert log.since(0) is None  # the first event is gone
    assert log.since(3) is None  # a client has "a" and "b" of "abcd"
    assert log.since(5) == []


def test_log_over_its_bytes_drops_the_oldest_events(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turn_log, "MAX_BYTES", 1000)
    log = TurnLog()
    for _ in range(3):
        log.append({"type": "tool_complete", "tool_result": "x" * 300})

    assert log.since(0) is None
    assert [event.seq for event in log.since(1) or ()] == [2, 3]
