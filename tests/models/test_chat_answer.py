"""Chunks as servers send them. The address beside a row is a report of a server that does."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import ModelInterrupted
from interlock.models import ReasoningDelta, Reply, TextDelta, Usage
from interlock.models.openai.chat_answer import ChatAnswer
from tests.models.wire_openai import chunk, fragment
from tests.support.rows import each_row

FACE = "\ud83d\ude00"  # the halves of one character, as two pieces of JSON can have them
STOP = chunk("stop")
CALLS = chunk("tool_calls")


def shown(*chunks: Any, marked: bool = False) -> tuple[str, str, Reply]:
    """Return the text and the reasoning that are shown while chunks arrive, and the answer."""
    answer = ChatAnswer("openai:m", "openai:m")
    events = [event for each in chunks for event in answer.add(each)]
    text = "".join(each.text for each in events if isinstance(each, TextDelta))
    thought = "".join(each.text for each in events if isinstance(each, ReasoningDelta))
    return text, thought, answer.reply(marked=marked)


def delta(**members: Any) -> dict[str, Any]:
    return chunk(**members)


def legacy(**function: str) -> dict[str, Any]:
    return chunk(function_call=function)


PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}]
DETAIL = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
YES = {"type": "text", "text": "Yes."}


@each_row(
    ("name", "chunks", "thought"),
    [
        ("only the role", [delta(role="assistant"), delta(content="Yes.")], ""),
        ("null", [delta(content=None), {"choices": None}, delta(content="Yes.")], ""),
        ("no delta", [{"choices": [{"delta": None}]}, delta(content="Yes.")], ""),
        ("an empty list", [delta(content="Yes.", tool_calls=[])], ""),
        # https://github.com/symfony/ai/issues/2422
        ("parts", [delta(content=PARTS), delta(content=[YES]), delta(content="")], "Hm."),
        ("an unknown part", [delta(content=[{"type": "reference", "ids": [1]}, YES])], ""),
        ("one part", [delta(content=YES)], ""),
        ("a part with a value", [delta(content=[{"type": "text", "text": {"value": "Yes."}}])], ""),
        ("text of the older API", [{"choices": [{"text": "Yes."}]}], ""),
        ("parts of text", [delta(content=["Y", "es."])], ""),
        ("a whole message", [{"choices": [{"message": {"content": "Yes."}}]}], ""),
        (
            "the message again",
            [delta(content="Yes."), {"choices": [{"delta": {}, "message": {"content": "Yes."}}]}],
            "",
        ),
        (
            "the answer so far in each chunk",
            [
                {"choices": [{"delta": {"content": piece}, "message": {"content": so_far}}]}
                for piece, so_far in (("Y", "Y"), ("es.", "Yes."))
            ],
            "",
        ),
        ("one choice", [{"choices": {"delta": {"content": "Yes."}}}], ""),
        ("a text instead of calls", [delta(content="Yes.", tool_calls="\ud83d")], ""),
        ("a text instead of data", [delta(content="Yes.", extra_content="x")], ""),
        ("an error of null", [{**delta(content="Yes."), "error": None}], ""),
        # DeepSeek, vLLM, and servers that send both: the reasoning is shown once.
        ("reasoning", [delta(reasoning_content="Hm."), delta(content="Yes.")], "Hm."),
        (
            "reasoning twice",
            [delta(reasoning="Hm.", reasoning_content="Hm."), delta(content="Yes.")],
            "Hm.",
        ),
        ("an object", [delta(reasoning={"text": "Hm."}, content="Yes.")], "Hm."),
        ("a list", [delta(thinking=[{"thinking": "Hm."}], content="Yes.")], "Hm."),
        # https://openrouter.ai/docs/use-cases/reasoning-tokens
        ("details", [delta(reasoning_details=[{**DETAIL, "text": "Hm."}], content="Yes.")], "Hm."),
        (
            "details and text",
            [delta(reasoning="Hm.", reasoning_details=[{**DETAIL, "text": "Hm."}], content="Yes.")],
            "Hm.",
        ),
    ],
)
def test_text_is_read_from_every_form_and_kept_apart_from_reasoning(
    name: str, chunks: list[Any], thought: str
) -> None:
    text, reasoning, reply = shown(*chunks, STOP)

    assert (text, reasoning) == ("Yes.", thought)
    assert reply.message.content == "Yes."


def test_tags_of_thinking_within_text_stay_text() -> None:
    text, reasoning, _ = shown(delta(content="<think>Hm.</think>Yes."), STOP)

    assert (text, reasoning) == ("<think>Hm.</think>Yes.", "")


X, Y = {"x": 1}, {"y": 2}
TEXT_X, TEXT_Y = '{"x": 1}', '{"y": 2}'


@each_row(
    ("name", "chunks", "expected"),
    [
        ("text", [fragment("0", TEXT_X, id=7, name="one")], [("7", "one", X)]),
        (
            "one object",
            [chunk(tool_calls={"id": "a", "function": {"name": "one"}})],
            [("a", "one", {})],
        ),
        (
            "no function",
            [
                fragment(0, "", id="a", name="one"),
                chunk(tool_calls=[{"index": 0, "function": None}]),
            ],
            [("a", "one", {})],
        ),
        (
            "flat",
            [legacy(name="one"), legacy(arguments='{"x":'), legacy(arguments=" 1}")],
            [(None, "one", X)],
        ),
        # Index 0 for all: https://github.com/ai-dynamo/dynamo/pull/4723
        (
            "index 0",
            [fragment(0, TEXT_X, id="a", name="one"), fragment(0, TEXT_Y, id="b", name="one")],
            [("a", "one", X), ("b", "one", Y)],
        ),
        (
            "index 0, no ids",
            [fragment(0, TEXT_X, name="one"), fragment(0, TEXT_Y, name="two")],
            [(None, "one", X), (None, "two", Y)],
        ),
        (
            "index 0, mixed",
            [
                fragment(0, '{"x"', id="a", name="one"),
                fragment(0, '{"y"', id="b", name="one"),
                fragment(0, ": 1}", id="a"),
                fragment(0, ": 2}", id="b"),
            ],
            [("a", "one", X), ("b", "one", Y)],
        ),
        # No index, in one chunk: https://github.com/router-for-me/CLIProxyAPI/issues/5058
        (
            "no index",
            [
                chunk(
                    tool_calls=[
                        {"id": id, "function": {"name": "one", "arguments": text}}
                        for id, text in (("a", TEXT_X), ("b", TEXT_Y))
                    ]
                )
            ],
            [("a", "one", X), ("b", "one", Y)],
        ),
        # An index for each piece: https://github.com/dirac-run/dirac/pull/215
        (
            "index of the piece",
            [fragment(0, '{"x"', id="a", name="one"), fragment(1, ": 1"), fragment(2, "}")],
            [("a", "one", X)],
        ),
        (
            "an id for each piece",
            [fragment(0, '{"x"', id="a", name="one"), fragment(0, ": 1}", id="b")],
            [("a", "one", X)],
        ),
        (
            "two halves",
            [fragment(0, '{"x"', id="a", name="one"), fragment(0, ": 1}", id="b", name="one")],
            [("a", "one", X)],
        ),
        (
            "one id",
            [fragment(0, TEXT_X, id="a", name="one"), fragment(1, TEXT_Y, id="a", name="two")],
            [("a", "one", X), (None, "two", Y)],
        ),
        (
            "the calls again",
            [
                *[fragment(n, text, id=text, name="one") for n, text in enumerate((TEXT_X, TEXT_Y))]
                * 2
            ],
            [(TEXT_X, "one", X), (TEXT_Y, "one", Y)],
        ),
        (
            "again, with new indexes",
            [fragment(0, TEXT_X, id="a", name="one"), fragment(1, TEXT_X, id="a", name="one")],
            [("a", "one", X)],
        ),
        (
            "two equal calls",
            [fragment(0, TEXT_X, id="a", name="one"), fragment(1, TEXT_X, id="b", name="one")],
            [("a", "one", X), ("b", "one", X)],
        ),
        (
            "pieces, mixed",
            [
                fragment(0, "", id="a", name="one"),
                fragment(1, '{"y"', id="b", name="two"),
                fragment(0, '{"x"'),
                fragment(1, ": 2}"),
                fragment(0, ": 1}"),
            ],
            [("a", "one", X), ("b", "two", Y)],
        ),
        (
            "no index, pieces",
            [
                fragment(None, '{"x"', id="a", name="one"),
                fragment(None, ": 1}"),
                fragment(None, '{"y"', id="b", name="two"),
                fragment(None, ": 2}", id="b"),
                fragment(None, "{}", name="three"),
            ],
            [("a", "one", X), ("b", "two", Y), (None, "three", {})],
        ),
        (
            "the id after the name",
            [fragment(0, '{"x"', name="one"), fragment(0, ": 1}", id="a")],
            [("a", "one", X)],
        ),
        (
            "the id and the name again",
            [fragment(0, piece, id="a", name="one") for piece in ('{"x"', ": 1}")],
            [("a", "one", X)],
        ),
        ("an object", [fragment(0, X, id="a", name="one")], [("a", "one", X)]),
        (
            "an object in two parts",
            [fragment(0, X, id="a", name="one"), fragment(0, Y)],
            [("a", "one", {**X, **Y})],
        ),
        (
            "two objects",
            [fragment(0, X, id="a", name="one"), fragment(0, {"x": 2})],
            [("a", "one", X), (None, "one", {"x": 2})],
        ),
        (
            "an empty object first",
            [fragment(0, {}, id="a", name="one"), fragment(0, '{"x":'), fragment(0, " 1}")],
            [("a", "one", X)],
        ),
        ("no function", [delta(tool_calls=[{"name": "one", "arguments": X}])], [(None, "one", X)]),
        (
            "calls by number",
            [delta(tool_calls={"1": {"id": "a", "function": {"name": "one", "arguments": "{}"}}})],
            [("a", "one", {})],
        ),
        (
            "a character in halves",
            [fragment(0, '{"x": "' + FACE[0], id="a", name="one"), fragment(0, FACE[1] + '"}')],
            [("a", "one", {"x": "\U0001f600"})],
        ),
    ],
)
def test_calls_are_assembled_from_every_form(
    name: str, chunks: list[Any], expected: list[tuple[str | None, str, dict[str, Any]]]
) -> None:
    calls = shown(*chunks, CALLS)[2].message.tool_calls

    assert [(call.name, call.input, call.malformed) for call in calls] == [
        (name, input, None) for _, name, input in expected
    ]
    assert all(id in (None, call.id) for call, (id, _, _) in zip(calls, expected, strict=True))
    assert len({call.id for call in calls}) == len(calls)


CALL = fragment(0, TEXT_X, id="a", name="one")
BARE = fragment(0, "", id="a", name="one")
HALF = fragment(0, '{"x": ', id="a", name="one")
TEXT = delta(content="Yes.")
USAGE = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}


@each_row(
    ("name", "chunks", "marked", "whole"),
    [
        ("reason", [TEXT, STOP], False, True),
        ("any reason", [TEXT, chunk("eos")], False, True),
        ("calls, but stop", [CALL, STOP], False, True),
        ("legacy reason", [CALL, chunk("function_call")], False, True),
        # [DONE] without a reason: https://github.com/router-for-me/CLIProxyAPI/issues/4860
        ("mark", [TEXT], True, True),
        # An empty reason: https://github.com/sgl-project/sglang/issues/3912
        ("empty reason", [TEXT, chunk("")], True, True),
        ("mark after a call", [CALL], True, True),
        ("mark after a call without arguments", [BARE], True, True),
        # https://github.com/Dstack-TEE/private-ai-gateway/pull/114
        ("usage", [TEXT, USAGE], False, True),
        ("the end of the body after a call", [CALL], False, True),
        ("usage in each chunk", [{**TEXT, "usage": USAGE["usage"]}], False, False),
        ("usage first", [USAGE, TEXT], False, False),
        # https://github.com/earendil-works/pi/pull/4558
        ("text", [TEXT], False, False),
        ("nothing", [], False, False),
        ("nothing but a mark", [], True, False),
        ("reasoning and a mark", [delta(reasoning="Hm.")], True, False),
        ("a call without arguments", [BARE], False, False),
        ("a call that is cut", [HALF], False, False),
        ("a call that is cut, and a mark", [HALF], True, False),
        ("an error", [TEXT, chunk("error")], True, False),
        # https://github.com/googleapis/python-genai/issues/1836
        ("malformed", [chunk("function_call_filter: MALFORMED_FUNCTION_CALL")], True, False),
    ],
)
def test_only_an_answer_that_may_be_cut_is_reported_as_cut(
    name: str, chunks: list[Any], marked: bool, whole: bool
) -> None:
    if whole:
        reply = shown(*chunks, marked=marked)[2]
        assert reply.message.content or reply.message.tool_calls
    else:
        with pytest.raises(ModelInterrupted, match="was cut off"):
            shown(*chunks, marked=marked)


@each_row(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 12.0, "completion_tokens": 3.0}, Usage(12, 3)),
        ({"prompt_tokens": "12", "completion_tokens": None}, Usage(12, 0)),
        ({"prompt_tokens": [], "completion_tokens": "many"}, Usage()),
        ({"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": "1.0"}}, Usage(1, 0, 1)),
        ("none", Usage()),
    ],
)
def test_numbers_of_tokens_are_read_from_every_form(usage: Any, expected: Usage) -> None:
    assert shown(TEXT, STOP, {"choices": [], "usage": usage})[2].usage == expected


@each_row(
    ("name", "chunks", "text", "thought"),
    [
        ("joined", [delta(content=f"Hi {FACE[0]}"), delta(content=FACE[1])], "Hi \U0001f600", ""),
        ("cut", [delta(content=f"Hi {FACE[0]}")], "Hi \ufffd", ""),
        ("not joined", [delta(content=FACE[0]), delta(content="Hi")], "\ufffdHi", ""),
        ("second half", [delta(content=f"{FACE[1]}Hi")], "\ufffdHi", ""),
        (
            "of two texts",
            [
                delta(reasoning=FACE[0]),
                delta(content=FACE[0]),
                delta(reasoning=FACE[1]),
                delta(content=FACE[1]),
            ],
            "\U0001f600",
            "\U0001f600",
        ),
    ],
)
def test_a_character_in_halves_is_joined_within_its_text(
    name: str, chunks: list[Any], text: str, thought: str
) -> None:
    streamed, reasoning, reply = shown(*chunks, STOP)

    assert reply.message.content == text
    assert text.startswith(streamed)
    assert reasoning == thought
    repr(reply).encode()


@each_row("event", [5, "text", [], None])
def test_an_event_that_is_not_an_object_is_refused(event: Any) -> None:
    with pytest.raises(ValueError, match="not an object"):
        ChatAnswer("openai:m", "openai:m").add(event)
