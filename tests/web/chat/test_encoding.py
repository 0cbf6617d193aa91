"""What the encodings of a turn have in common."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.web.chat.agui import AguiEncoder
from interlock.web.chat.aisdk import AiSdkEncoder
from interlock.web.chat.encoding import TurnEncoder

ENCODERS = [
    lambda known: AguiEncoder("thread", "run", "turn", frozenset(known)),
    lambda known: AiSdkEncoder("message", frozenset(known)),
]
START = {"type": "tool_start", "tool_call_id": "t1", "tool_name": "kb:get", "tool_input": "{}"}


@pytest.fixture(params=ENCODERS, ids=["AG-UI", "AI SDK"])
def make(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_call_is_announced_once(make: Any) -> None:
    encoder: TurnEncoder = make([])

    assert encoder.feed(START)
    assert encoder.feed(START) == []
    assert make(["t1"]).feed(START) == []


def test_empty_text_and_unknown_events_are_not_sent(make: Any) -> None:
    encoder: TurnEncoder = make([])

    assert encoder.feed({"type": "token", "content": ""}) == []
    assert encoder.feed({"type": "something new"}) == []


def test_a_notice_is_sent_as_reasoning(make: Any) -> None:
    thought = {"type": "reasoning", "content": "It cannot read a.pdf\n"}

    assert make([]).feed({"type": "notice", "content": "It cannot read a.pdf"}) == make([]).feed(
        thought
    )


def test_open_text_part_is_ended_before_an_error(make: Any) -> None:
    encoder: TurnEncoder = make([])
    encoder.feed({"type": "token", "content": "a"})

    sent = encoder.feed({"type": "error", "code": "timeout", "message": "too slow"})

    assert len(sent) == 2
    assert "end" in sent[0]["type"].lower()
    assert "timeout" in str(sent[1])
