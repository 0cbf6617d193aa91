"""Events of the Messages API as servers send them; the address beside a row is a report."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import ModelInterrupted
from interlock.messages import Message, ToolCall, ToolMessage
from interlock.models import ReasoningDelta, Reply, TextDelta
from interlock.models.anthropic.messages_answer import MessagesAnswer
from interlock.models.anthropic.messages_request import wire_messages
from tests.support.rows import each_row

ANTHROPIC = "anthropic:m"
OTHER = "anthropic:m@http://127.0.0.1:1"
STOP = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
END = {"type": "message_stop"}


def start(index: int | None = 0, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(kind: str, index: Any = 0, **members: Any) -> dict[str, Any]:
    delta = {"type": f"{kind}_delta", **members}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def shown(*events: Any, name: str = ANTHROPIC, marked: bool = False) -> tuple[str, str, Reply]:
    answer = MessagesAnswer(name, name)
    pieces = [each for event in events for each in answer.add(event)]
    text = "".join(each.text for each in pieces if isinstance(each, TextDelta))
    thought = "".join(each.text for each in pieces if isinstance(each, ReasoningDelta))
    return text, thought, answer.reply(marked=marked)


TEXT = [start(type="text", text=""), piece("text", text="Yes.")]
THINKING = [start(type="thinking", thinking=""), piece("thinking", thinking="Hm.")]
SECOND = [start(1, type="text", text=""), piece("text", 1, text="Yes.")]
CALL = [
    start(type="tool_use", id="a", name="one", input={}),
    piece("input_json", partial_json='{"x": 1}'),
]
HALF = [CALL[0], piece("input_json", partial_json='{"x')]


@each_row(
    ("name", "events", "text", "thought"),
    [
        # https://github.com/esengine/DeepSeek-Reasonix/pull/8756
        ("no message_stop", [*TEXT, STOP], "Yes.", ""),
        ("no stop reason", [*TEXT, END], "Yes.", ""),
        ("pings", [{"type": "ping"}, *TEXT, {"type": "vendor.usage", "x": 1}, STOP], "Yes.", ""),
        ("no start of the block", [piece("text", text="Yes."), STOP], "Yes.", ""),
        ("no start of thinking", [piece("thinking", thinking="Hm."), *SECOND, STOP], "Yes.", "Hm."),
        (
            "no indexes",
            [start(None, type="text"), piece("text", None, text="Yes."), STOP],
            "Yes.",
            "",
        ),
        ("index as text", [start(type="text"), piece("text", "0", text="Yes."), STOP], "Yes.", ""),
        ("text in the start", [start(type="text", text="Yes."), STOP], "Yes.", ""),
        ("parts", [start(type="text"), piece("text", text=[{"text": "Yes."}]), STOP], "Yes.", ""),
        ("null", [{"type": "message_start", "message": None}, *TEXT, STOP], "Yes.", ""),
        ("one index", [*THINKING, *TEXT, STOP], "Yes.", "Hm."),
        ("no type of a block", [start(text=""), piece("text", text="Yes."), STOP], "Yes.", ""),
        (
            "another type",
            [start(type="text"), piece("x", type="text", text="Yes."), STOP],
            "Yes.",
            "",
        ),
        ("a whole message", [{"type": "message", "content": [{"text": "Yes."}]}], "Yes.", ""),
        ("a whole message of text", [{"type": "message", "content": "Yes."}], "Yes.", ""),
        (
            "tokens",
            [{"type": "message_start", "message": {"usage": {"input_tokens": "1"}}}, *TEXT, STOP],
            "Yes.",
            "",
        ),
    ],
)
def test_text_is_read_from_every_form(
    name: str, events: list[Any], text: str, thought: str
) -> None:
    streamed, reasoning, reply = shown(*events)

    assert (streamed, reasoning, reply.message.content) == (text, thought, text)


def test_calls_with_one_index_are_kept_apart() -> None:
    other = [start(type="tool_use", id="b", name="two"), piece("input_json", partial_json="{}")]

    found = shown(*TEXT, CALL[0], *CALL, *other, STOP)[2].message

    assert found.content == "Yes."
    assert found.tool_calls == (ToolCall("a", "one", {"x": 1}), ToolCall("b", "two"))


@each_row(
    ("name", "events"),
    [
        ("pieces", [*CALL, STOP]),
        ("whole", [start(type="tool_use", id="a", name="one", input={"x": 1}), STOP]),
        ("text", [start(type="tool_use", id="a", name="one", input='{"x": 1}'), STOP]),
        ("an object", [CALL[0], piece("input_json", partial_json={"x": 1}), STOP]),
        ("no type", [CALL[0], piece("x", type="", partial_json='{"x": 1}'), STOP]),
        ("the end of the body", CALL),
    ],
)
def test_calls_are_read_from_every_form(name: str, events: list[Any]) -> None:
    assert shown(*events)[2].message.tool_calls == (ToolCall("a", "one", {"x": 1}),)
    other = shown(start(type="tool_use", id="a", name="one", input="x: 1"), STOP)[2]
    assert other.message.tool_calls == (ToolCall("a", "one", malformed="x: 1"),)


@each_row(
    ("name", "events", "marked"),
    [
        # https://github.com/maximhq/bifrost/issues/6081
        ("text", TEXT, False),
        ("text after a call", [*CALL, *SECOND], False),
        ("half a call", HALF, False),
        ("half a call, and a mark", HALF, True),
        ("nothing", [], True),
    ],
)
def test_an_answer_that_may_be_cut_is_reported_as_cut(
    name: str, events: list[Any], marked: bool
) -> None:
    with pytest.raises(ModelInterrupted, match="was cut off"):
        shown(*events, marked=marked)


SIGNED = [*THINKING, piece("signature", signature="s"), *SECOND, STOP]
UNSIGNED = [*THINKING, *SECOND, STOP]
REDACTED = [start(type="redacted_thinking", data="x"), *SECOND, STOP]
YES = {"type": "text", "text": "Yes."}


@each_row(
    ("name", "model", "events", "sent"),
    [
        ("signed", ANTHROPIC, SIGNED, [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]),
        ("redacted", ANTHROPIC, REDACTED, [{"type": "redacted_thinking", "data": "x"}]),
        # "thinking.signature: Field required": https://github.com/dirge-code/dirge/pull/823
        ("unsigned", ANTHROPIC, UNSIGNED, []),
        # DeepSeek needs it without a signature: https://github.com/decolua/9router/issues/2397
        ("unsigned, of another server", OTHER, UNSIGNED, [{"type": "thinking", "thinking": "Hm."}]),
    ],
)
def test_thinking_is_sent_back_to_its_model_alone(
    name: str, model: str, events: list[Any], sent: list[Any]
) -> None:
    message = shown(*events, name=model)[2].message

    assert wire_messages([message], provider=model)[0]["content"] == [*sent, YES]
    assert wire_messages([message], provider="anthropic:another")[0]["content"] == [YES]


@each_row(
    ("result", "content"),
    [
        # https://github.com/anomalyco/opencode/issues/15371
        (ToolMessage("a", ""), "the tool ran without output"),
        # "content cannot be empty if is_error is true": https://github.com/bytedance/trae-agent/pull/231
        (ToolMessage("a", " ", is_error=True), "the tool failed without a message"),
    ],
)
def test_an_empty_result_is_a_line(result: Message, content: str) -> None:
    assert wire_messages([result])[0]["content"][0]["content"] == content


def test_a_character_in_halves_is_joined() -> None:
    halves = [piece("text", text=f"Hi {half}") for half in ("\ud83d", "\ude00", "\ud83d")]
    text, _, reply = shown(
        start(type="text"), halves[0], piece("text", text="\ude00"), halves[2], STOP
    )

    assert text == "Hi \U0001f600Hi "
    assert reply.message.content == "Hi \U0001f600Hi \ufffd"
