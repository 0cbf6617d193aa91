"""The events of a turn: pieces of text that are joined, and what a client gets that was away."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from interlock.web.chat import turn_log
from interlock.web.chat.turn_log import TurnLog, TurnText


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> TurnLog:
    """Return a log that keeps three events."""
    monkeypatch.setattr(turn_log, "MAX_EVENTS", 3)
    return TurnLog()


def test_pieces_of_text_after_a_number_are_one_event() -> None:
    log = TurnLog()
    for fields in (
        {"type": "started"},
        {"type": "token", "content": "a"},
        {"type": "token", "content": "b"},
        {"type": "token", "content": "c"},
        {"type": "tool_start"},
        {"type": "token", "content": "d"},
    ):
        log.append({**fields, "turn_id": "t"})

    assert [event.fields for event in log.since(2) or ()] == [
        {"type": "token", "turn_id": "t", "content": "bc", "seq": 4, "from": 3},
        {"type": "tool_start", "turn_id": "t", "seq": 5},
        {"type": "token", "turn_id": "t", "content": "d", "seq": 6},
    ]


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
    log.append({"type": "token", "content": "y" * 2_000})

    assert log.since(3) is None
    assert log.since(4) == []
    log.append({"type": "complete", "content": "z"})
    assert [event.seq for event in log.since(4) or ()] == [5]


def test_text_of_a_long_answer_takes_a_hundred_bytes_a_piece() -> None:
    """A thousand answers of a minute, twenty pieces a second, are 120 MB."""
    tracemalloc.start()
    try:
        log = TurnLog()
        for number in range(1_200):
            log.append({"type": "token", "content": f" {number}", "conversation_id": "c"})
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert used / 1_200 < 100


# Text that waits


async def test_first_piece_is_emitted_at_once_and_others_wait_to_be_joined() -> None:
    emitted: list[tuple[str, str]] = []
    text = TurnText(lambda kind, piece: emitted.append((kind, piece)))
    for letter in "abcd":
        text.add("token", letter)

    assert emitted == [("token", "a")]
    text.flush()
    assert emitted == [("token", "a"), ("token", "bcd")]


async def test_reasoning_and_answer_are_not_joined_with_each_other() -> None:
    emitted: list[tuple[str, str]] = []
    text = TurnText(lambda kind, piece: emitted.append((kind, piece)))
    for kind, piece in (("reasoning", "a"), ("reasoning", "b"), ("token", "c"), ("token", "d")):
        text.add(kind, piece)
    text.flush()

    assert emitted == [("reasoning", "a"), ("reasoning", "b"), ("token", "cd")]


async def test_waiting_text_is_emitted_by_a_single_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_log, "JOIN_SECONDS", 0.001)
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    call_later, timers = loop.call_later, []
    monkeypatch.setattr(loop, "call_later", lambda *args: timers.append(args) or call_later(*args))
    emitted: list[str] = []

    def emit(_: str, piece: str) -> None:
        emitted.append(piece)
        if len(emitted) == 2:
            done.set()

    text = TurnText(emit)
    for _ in range(1_000):
        text.add("token", "x")
    await done.wait()

    assert (len(timers), "".join(emitted)) == (1, "x" * 1_000)
