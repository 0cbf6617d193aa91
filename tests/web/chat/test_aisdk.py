"""Turns as chunks of the AI SDK's message stream."""

from __future__ import annotations

from typing import Any

from interlock.web.chat.aisdk import AiSdkEncoder
from tests.support.rows import each_row
from tests.web.encoded import APPROVAL, PROGRESS, START

TEXT = {"type": "token", "content": "a"}
DONE = {"type": "complete", "stop_reason": "end"}


def end(**members: Any) -> dict[str, Any]:
    return {
        "type": "tool_complete",
        "tool_call_id": "t1",
        "tool_result": "7",
        "is_error": False,
        **members,
    }


def chunks(*events: dict[str, Any]) -> list[Any]:
    encoder = AiSdkEncoder("m1", frozenset())
    return [each for event in events for each in encoder.feed(event)]


def test_every_started_part_and_step_of_the_stream_is_ended() -> None:
    found = [each["type"] for each in chunks(TEXT, START, end(), TEXT, DONE)]

    assert found == [
        "text-start",
        "text-delta",
        "text-end",
        "tool-input-available",
        "tool-output-available",
        "finish-step",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ]


def test_a_response_begins_with_the_id_of_its_message() -> None:
    assert AiSdkEncoder("m1", frozenset()).start() == [
        {"type": "start", "messageId": "m1"},
        {"type": "start-step"},
    ]


def test_reasoning_is_a_part_and_progress_is_not_kept() -> None:
    found = chunks({"type": "reasoning", "content": "Hm."}, PROGRESS, DONE)

    assert [each["type"] for each in found][:4] == [
        "reasoning-start",
        "reasoning-delta",
        "data-progress",
        "reasoning-end",
    ]
    assert found[2]["transient"] is True
    assert found[2]["data"]["progress"] == 1


def test_call_that_needs_a_decision_ends_the_response_with_a_request_for_it() -> None:
    encoder = AiSdkEncoder("m1", frozenset())
    call, request = encoder.feed(APPROVAL)

    assert (call["type"], call["dynamic"]) == ("tool-input-available", True)
    assert request == {"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "t1"}
    assert encoder.interrupted() == [
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "tool-calls"},
    ]


@each_row(
    ("event", "kind"),
    [
        (end(), "tool-output-available"),
        (end(is_error=True), "tool-output-error"),
        (end(is_error=True, reason="approval_denied"), "tool-output-denied"),
    ],
)
def test_a_result_is_an_output_an_error_or_a_denial(event: Any, kind: str) -> None:
    assert [each["type"] for each in chunks(event)] == [kind]


@each_row(
    ("reason", "kinds"),
    [("stopped", ["abort"]), ("length", ["finish-step", "finish"])],
)
def test_turn_ends_with_its_own_stop_reason(reason: str, kinds: list[str]) -> None:
    found = chunks({"type": "complete", "stop_reason": reason})

    assert [each["type"] for each in found] == kinds
    assert found[-1].get("finishReason") in (None, "length")
