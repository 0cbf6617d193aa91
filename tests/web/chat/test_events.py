"""Events of a turn as JSON objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlock.agent import QuestionAsked, ToolFinished, ToolStarted
from interlock.models import TextDelta
from interlock.web.chat.events import MAX_RESULT, TurnEvent, decoded, fields_of, stopped_call
from tests.support.rows import each_row

STARTED = ToolStarted("t1", "kb:get", {"x": "ä"}, call_id="c1")


def finished(result: str, **members: Any) -> dict[str, Any]:
    event = ToolFinished("t1", "kb:get", {}, result, False, 0.1234567, call_id="c1", **members)
    fields = fields_of(event)
    assert fields is not None
    return fields


def question(method: str = "elicitation/create", **params: Any) -> dict[str, Any]:
    fields = fields_of(QuestionAsked("q1", "t1", "kb", method, params))
    assert fields is not None
    return fields


def test_call_event_has_the_arguments_as_text_and_both_ids() -> None:
    fields = fields_of(STARTED)

    assert fields is not None
    assert json.loads(fields["tool_input"]) == {"x": "ä"}
    assert (fields["tool_call_id"], fields["call_id"]) == ("t1", "c1")


def test_a_long_result_is_cut_and_states_how_long_it_was() -> None:
    long = finished("x" * (MAX_RESULT + 1))

    assert len(long["tool_result"]) < MAX_RESULT + 100
    assert long["tool_result"].endswith("[cut: the whole result has 16,385 characters]")
    assert long["truncated"]
    assert "truncated" not in finished("x" * MAX_RESULT)


def test_a_refused_call_has_its_reason() -> None:
    assert finished("no", ending="refused", reason="no_rule")["reason"] == "no_rule"
    assert "reason" not in finished("yes")


@each_row(
    ("asked", "members"),
    [
        (
            question(requestedSchema={"type": "object"}),
            {"mode": "form", "schema": {"type": "object"}},
        ),
        (
            question(mode="url", url="https://a.example"),
            {"mode": "url", "url": "https://a.example"},
        ),
        (question("sampling/createMessage", messages=[1]), {"mode": "sampling", "messages": [1]}),
    ],
    ids=["form", "url", "sampling"],
)
def test_each_kind_of_question_has_the_members_that_the_page_needs(
    asked: Any, members: Any
) -> None:
    assert {key: asked[key] for key in members} == members


def test_stopped_call_ends_with_the_id_with_which_it_started() -> None:
    started = fields_of(STARTED)
    assert started is not None

    ended = stopped_call(started)

    assert (ended["tool_call_id"], ended["call_id"], ended["outcome"]) == ("t1", "c1", "stopped")


def test_text_of_an_event_is_its_json() -> None:
    event = TurnEvent(1, fields_of(TextDelta("hello")) or {})

    assert (event.kind, json.loads(event.text)) == ("token", {"type": "token", "content": "hello"})
    with pytest.raises(ValueError, match="not an object"):
        decoded("[]")
