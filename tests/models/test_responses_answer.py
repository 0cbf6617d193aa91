"""Events of the Responses API as servers send them; the address beside a row is a report."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import ModelInterrupted
from interlock.messages import ToolCall
from interlock.models import Reply, TextDelta
from interlock.models.openai.responses_answer import ResponsesAnswer
from tests.models.wire_responses import call, message, reasoning
from tests.support.rows import each_row

COMPLETED = {"type": "response.completed", "response": {"output": []}}
SAYS = {"type": "response.output_text.delta", "delta": "Yes.", "output_index": 0}
SAID = {"type": "response.output_text.done", "text": "Yes.", "output_index": 0}
CALL = call("a", "one", '{"x": 1}')
TEXT = message("Yes.")


def event(kind: str, **members: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **members}


def shown(*events: Any, marked: bool = False) -> tuple[str, Reply]:
    answer = ResponsesAnswer("openai:m", "responses:openai:m")
    pieces = [piece for each in events for piece in answer.add(each)]
    text = "".join(each.text for each in pieces if isinstance(each, TextDelta))
    return text, answer.reply(marked=marked)


@each_row(
    ("name", "events"),
    [
        # No output in the last event: https://github.com/QuantumNous/new-api/issues/4362
        ("pieces", [SAYS, SAID, COMPLETED]),
        ("no output", [SAYS, event("completed", response={"output": None})]),
        ("no response", [SAYS, {"type": "response.completed"}]),
        ("only the whole text", [SAID, COMPLETED]),
        ("only the item", [event("output_item.done", item=TEXT), COMPLETED]),
        ("only the end", [event("completed", response={"output": [TEXT]})]),
        ("another end", [event("done", response={"output": [TEXT]})]),
        (
            "everything",
            [
                SAYS,
                SAID,
                event("output_item.done", output_index=0, item=TEXT),
                event("completed", response={"output": [TEXT]}),
            ],
        ),
        (
            "no indexes",
            [
                {**SAYS, "output_index": None},
                event("output_item.done", item=TEXT),
                event("completed", response={"output": [TEXT]}),
            ],
        ),
        (
            "an item without index",
            [
                event("output_item.added", output_index=0, item={"type": "message"}),
                SAYS,
                event("output_item.done", item=TEXT),
                COMPLETED,
            ],
        ),
        ("half a character", [{**SAYS, "output_index": "\ud83d"}, COMPLETED]),
        ("an object", [{**SAYS, "delta": {"text": "Yes."}}, COMPLETED]),
        (
            "a text as index",
            [
                {**SAYS, "output_index": "0"},
                {**COMPLETED, "response": {"usage": {"input_tokens": "1.0"}}},
            ],
        ),
    ],
)
def test_text_is_shown_once_wherever_it_comes(name: str, events: list[Any]) -> None:
    text, reply = shown(*events)

    assert (text, reply.message.content) == ("Yes.", "Yes.")


@each_row(
    ("name", "events"),
    [
        ("the item", [event("output_item.done", output_index=0, item=CALL), COMPLETED]),
        (
            "items without indexes",
            [event("output_item.done", item=TEXT), event("output_item.done", item=CALL), COMPLETED],
        ),
        ("only the end", [event("completed", response={"output": [CALL]})]),
        ("an object", [event("completed", response={"output": [{**CALL, "arguments": {"x": 1}}]})]),
        (
            "no item at the end",
            [
                event("output_item.added", output_index=0, item={**CALL, "arguments": ""}),
                event("function_call_arguments.delta", output_index=0, delta='{"x"'),
                event("function_call_arguments.delta", output_index=0, delta=": 1}"),
                COMPLETED,
            ],
        ),
        (
            "the whole arguments",
            [
                event("output_item.added", output_index=0, item={**CALL, "arguments": ""}),
                event("function_call_arguments.delta", output_index=0, delta='{"x"'),
                event("function_call_arguments.done", output_index=0, arguments='{"x": 1}'),
                COMPLETED,
            ],
        ),
        ("no end after a call", [event("output_item.done", output_index=0, item=CALL)]),
    ],
)
def test_calls_are_read_wherever_they_come(name: str, events: list[Any]) -> None:
    assert shown(*events)[1].message.tool_calls == (ToolCall("a", "one", {"x": 1}),)


@each_row(
    ("name", "events", "marked", "whole"),
    [
        ("mark", [SAYS], True, True),
        ("text", [SAYS], False, False),
        ("nothing", [], True, False),
        ("failed", [SAYS, event("failed", response={"error": None})], True, False),
        (
            "half a call",
            [event("output_item.added", output_index=0, item={**CALL, "arguments": '{"x'})],
            True,
            False,
        ),
    ],
)
def test_only_an_answer_that_may_be_cut_is_reported_as_cut(
    name: str, events: list[Any], marked: bool, whole: bool
) -> None:
    if whole:
        assert shown(*events, marked=marked)[0] == "Yes."
    else:
        with pytest.raises(ModelInterrupted, match="was cut off"):
            shown(*events, marked=marked)


@each_row(
    ("item", "kept"),
    [
        (reasoning("Hm.", "sealed"), True),
        ({"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text"}]}, True),
        # https://github.com/vercel/ai/issues/7543
        ({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}, False),
    ],
)
def test_reasoning_is_kept_if_the_api_can_read_it_again(item: dict[str, Any], kept: bool) -> None:
    data = shown(event("completed", response={"output": [item, TEXT]}))[1].message.provider_data

    assert data == ({"provider": "responses:openai:m", "items": [item, TEXT]} if kept else None)


def _calls_of_two_items(**members: Any) -> list[Any]:
    """Return the events of two calls that are written side by side, with the same members."""
    first = {"type": "function_call", "id": "i1", "call_id": "a", "name": "one"}
    second = {"type": "function_call", "id": "i2", "call_id": "b", "name": "two"}
    delta = "function_call_arguments.delta"
    return [
        event("output_item.added", item=first, **members),
        event(delta, item_id="i1", delta='{"x":', **members),
        event("output_item.added", item=second, **members),
        event(delta, item_id="i2", delta='{"y":', **members),
        event(delta, item_id="i1", delta=" 1}", **members),
        event(delta, item_id="i2", delta=" 2}", **members),
        event("output_item.done", item={**first, "arguments": '{"x": 1}'}, **members),
    ]


@each_row("members", [{}, {"output_index": 0}, {"output_index": None}])
def test_arguments_belong_to_the_item_that_they_name(members: dict[str, Any]) -> None:
    calls = shown(*_calls_of_two_items(**members), COMPLETED)[1].message.tool_calls

    assert calls == (ToolCall("a", "one", {"x": 1}), ToolCall("b", "two", {"y": 2}))


def test_calls_without_ids_that_have_one_index_are_kept_apart() -> None:
    items = [{"type": "function_call", "name": each, "arguments": "{}"} for each in ("one", "two")]
    done = [event("output_item.done", output_index=0, item=each) for each in items]

    assert [each.name for each in shown(*done, COMPLETED)[1].message.tool_calls] == ["one", "two"]


def test_a_whole_answer_in_one_event_is_read() -> None:
    assert shown({"object": "response", "output": [TEXT], "status": "completed"})[0] == "Yes."
