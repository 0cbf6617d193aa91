"""Whatever a provider sends, an answer has valid text, or the user gets a clear error."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from interlock.errors import ModelInterrupted
from interlock.messages import AssistantMessage
from interlock.models import Reply, answer_size
from interlock.models.anthropic.messages_answer import MessagesAnswer
from interlock.models.lenient import convert, text_of
from interlock.models.openai.chat_answer import ChatAnswer
from interlock.models.openai.responses_answer import ResponsesAnswer
from interlock.protocol.envelope import encode
from tests.models.test_messages_answer import CALL, SIGNED
from tests.models.wire_openai import chunk, fragment, usage
from tests.models.wire_responses import call, message, reasoning
from tests.support.rows import each_row


class Inner(Struct):
    count: int | None = None


class Outer(Struct):
    text: str | None = None
    either: str | dict[str, Any] | None = None
    one: Inner | None = None
    many: list[Inner] | None = None
    data: dict[str, Any] | None = None


@each_row(
    ("value", "expected"),
    [
        ({"text": ["a", {"text": "b"}, None, 1]}, Outer(text="ab1")),
        ({"text": True, "either": {"a": 1}}, Outer(either={"a": 1})),
        ({"text": "\ud83d", "either": [{"text": "a"}], "many": 5}, Outer("\ud83d", "a", many=[])),
        ({"one": {"count": "1.0"}, "many": {"count": 2.5}}, Outer(one=Inner(1), many=[Inner(2)])),
        ({"one": [], "many": [None, {}, {"count": "x"}], "data": "x"}, Outer(many=[Inner()] * 2)),
        ({"data": {"a": None}, "unknown": 1, "text": float("inf")}, Outer("inf", data={"a": None})),
    ],
)
def test_values_are_read_by_their_meaning(value: Any, expected: Outer) -> None:
    assert convert(value, Outer) == expected


def test_a_part_without_text_has_none() -> None:
    assert text_of([{"type": "reference", "ids": [1]}, {"type": "text", "text": None}]) is None


DETAILS = [{"type": "reasoning.text", "text": "Hm."}]
CHAT = [
    chunk(content="Yes.", reasoning="Hm.", reasoning_details=DETAILS, extra_content={"a": {}}),
    fragment(0, '{"x"', id="a", name="one", extra_content={}),
    fragment(0, ": 1}"),
    chunk("stop"),
    usage(1, 2, prompt_tokens_details={"cached_tokens": 1}),
]
ITEMS = [reasoning("Hm.", "x"), call("a", "one", "{}"), message("Yes.")]
RESPONSES = [
    {"type": "response.output_item.added", "output_index": 1, "item": ITEMS[1]},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{"},
    {"type": "response.output_item.done", "output_index": 1, "item": ITEMS[1]},
    {"type": "response.output_text.delta", "output_index": 2, "delta": "Yes."},
    {"type": "response.completed", "response": {"output": ITEMS, "usage": {"input_tokens": 1}}},
]
ANSWERS: list[tuple[Any, list[Any]]] = [
    (ChatAnswer, CHAT),
    (ResponsesAnswer, RESPONSES),
    (MessagesAnswer, [*CALL, *SIGNED]),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text("a\ud83d\ude00{}", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "text", "id", "arguments"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(found for key, each in members for found in places(each, (*path, key)))]


@given(st.data())
def test_no_value_in_a_stream_causes_another_error(data: st.DataObject) -> None:
    kind, events = data.draw(st.sampled_from(ANSWERS))
    changed: Any = [deepcopy(each) for each in events]
    path = data.draw(st.sampled_from([each for each in places(changed) if each]))
    target = changed
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = data.draw(JSON)
    answer = kind("m", "m")

    shown, reply = "", Reply(AssistantMessage())
    with suppress(ValueError, ModelInterrupted):
        shown = "".join(piece.text for event in changed for piece in answer.add(event))
        reply = answer.reply(marked=True)
    # Neither a lone half of a character nor anything else that is not JSON gets through.
    assert msgspec.json.decode(encode([shown, reply]), strict=True)


@each_row(
    ("kind", "event"),
    [
        (ChatAnswer, lambda n: chunk(reasoning_details=[{"index": n}])),
        (ChatAnswer, lambda n: chunk(tool_calls=[{"index": n, "function": {"name": "t"}}])),
        (ResponsesAnswer, lambda n: {**RESPONSES[0], "output_index": n, "item": {"id": "x"}}),
        (MessagesAnswer, lambda n: {**CALL[0], "index": n, "content_block": {"type": "x"}}),
    ],
)
def test_endless_parts_without_content_are_interrupted(
    kind: Any, event: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_size, "MAX_ANSWER_BYTES", 25_600)
    answer = kind("m", "m")

    with pytest.raises(ModelInterrupted, match="is too long"):
        any(answer.add(event(number)) == 0 for number in range(101))
