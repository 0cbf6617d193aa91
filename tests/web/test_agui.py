"""Turns as events of AG-UI: what belongs together has one id."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.web.agui import AguiEncoder, AguiInput

START = {"type": "tool_start", "tool_call_id": "t1", "tool_name": "kb:get", "tool_input": "{}"}
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


def test_a_call_that_the_client_knows_is_not_announced_again() -> None:
    assert encoded(START, announced=frozenset({"t1"})) == []


@pytest.mark.parametrize(("reason", "outcome"), [("stopped", "cancelled"), ("end", "success")])
def test_a_run_ends_with_its_outcome(reason: str, outcome: str) -> None:
    (ended,) = encoded({"type": "complete", "stop_reason": reason})

    assert (ended["type"], ended["outcome"]) == ("RUN_FINISHED", {"type": outcome})


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
