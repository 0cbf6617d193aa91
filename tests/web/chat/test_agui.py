"""Turns as events of AG-UI: what belongs together has one id."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.web.chat.agui import AguiEncoder, AguiInput
from tests.support.rows import each_row
from tests.web.encoded import APPROVAL, PROGRESS, START

END = {"type": "tool_complete", "tool_call_id": "t1", "tool_result": "no", "is_error": True}


def encoded(*events: dict[str, Any], announced: frozenset[str] = frozenset()) -> list[Any]:
    encoder = AguiEncoder("thread", "run", "turn", announced)
    return [each for event in events for each in encoder.feed(event)]


def test_text_after_a_result_is_a_new_message() -> None:
    text = {"type": "token", "content": "a"}

    found = encoded(text, START, END, text)

    assert [each["type"].replace("TEXT_MESSAGE", "TEXT") for each in found] == [
        "TEXT_START",
        "TEXT_CONTENT",
        "TEXT_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
        "TEXT_START",
        "TEXT_CONTENT",
    ]
    assert found[3]["parentMessageId"] == found[0]["messageId"]
    assert found[7]["messageId"] != found[0]["messageId"]
    assert found[6]["content"] == "error: no"


def test_a_run_begins_and_ends_with_its_ids_and_its_usage() -> None:
    encoder = AguiEncoder("thread", "run", "turn", frozenset())
    used = {"input_tokens": 7, "output_tokens": 2}
    ids = {"threadId": "thread", "runId": "run"}

    (ended,) = encoder.feed({"type": "complete", "stop_reason": "end", "usage": used})

    assert encoder.start() == [{"type": "RUN_STARTED", **ids, "protocolVersion": "1.0"}]
    assert ended.items() >= ids.items()
    assert ended["usage"] == [{"inputTokens": 7, "outputTokens": 2}]


def test_reasoning_and_progress_have_events_of_their_own() -> None:
    reasoning, text = {"type": "reasoning", "content": "Hm."}, {"type": "token", "content": "a"}

    *thought, _, _ = encoded(reasoning, text)
    (progress,) = encoded(PROGRESS)

    assert [(each["type"], each.get("delta")) for each in thought] == [
        ("REASONING_START", None),
        ("REASONING_MESSAGE_START", None),
        ("REASONING_MESSAGE_CONTENT", "Hm."),
        ("REASONING_MESSAGE_END", None),
        ("REASONING_END", None),
    ]
    assert (progress["type"], progress["name"]) == ("CUSTOM", "interlock.progress")
    assert progress["value"]["progress"] == 1


def test_run_that_needs_an_approval_ends_with_the_question() -> None:
    encoder = AguiEncoder("thread", "run", "turn", frozenset())
    shown = encoder.feed(APPROVAL)
    (ended,) = encoder.interrupted()

    assert shown[0]["type"] == "TOOL_CALL_START"
    (interrupt,) = ended["outcome"]["interrupts"]
    assert (ended["type"], ended["outcome"]["type"]) == ("RUN_FINISHED", "interrupt")
    assert (interrupt["id"], interrupt["toolCallId"]) == ("a1", "t1")
    assert (interrupt["reason"], interrupt["message"]) == ("tool_call", "kb:get: it deletes")
    assert interrupt["expiresAt"] == "2026-11-24T00:00:00Z"
    assert "decision" in interrupt["responseSchema"]["properties"]


def test_an_error_has_its_code() -> None:
    (ended,) = encoded({"type": "error", "code": "timeout", "message": "too slow"})

    assert ended == {"type": "RUN_ERROR", "code": "timeout", "message": "too slow"}


def test_call_that_the_client_already_knows_is_not_announced_again() -> None:
    assert encoded(START, announced=frozenset({"t1"})) == []


@each_row(("reason", "outcome"), [("stopped", "cancelled"), ("end", "success")])
def test_a_run_ends_with_its_outcome(reason: str, outcome: str) -> None:
    (ended,) = encoded({"type": "complete", "stop_reason": reason})

    assert (ended["type"], ended["outcome"]) == ("RUN_FINISHED", {"type": outcome})


@each_row(
    ("entry", "decision"),
    [
        ({"payload": {"decision": "allow", "note": "ok"}}, ("allow", "ok")),
        ({"payload": {"decision": "maybe"}}, ("deny", "")),
        ({"payload": "allow"}, ("deny", "")),
        ({"status": "cancelled", "payload": {"decision": "allow"}}, ("deny", "")),
    ],
)
def test_only_the_word_allow_allows_a_call(entry: Any, decision: Any) -> None:
    given = {"threadId": "t", "runId": "r", "resume": [{"interruptId": "a1", **entry}]}

    assert msgspec.convert(given, AguiInput).decisions == {"a1": decision}


@each_row(
    ("messages", "text"),
    [
        ([], ""),
        ([{"role": "user", "content": "hello"}], "hello"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}, 1]}], "ab"),
        ([{"role": "user", "content": "old"}, {"role": "assistant", "content": "x"}], ""),
    ],
)
def test_the_last_message_of_the_user_is_the_question(messages: Any, text: str) -> None:
    given = {"threadId": "t", "runId": "r", "messages": messages}

    assert msgspec.convert(given, AguiInput).content == text
