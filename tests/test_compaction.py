"""Requests for conversations that are longer than a model's context."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.agent import Agent, Compacted, Done
from interlock.compaction import ContextLimits, fit, size_of
from interlock.errors import ContextTooLong
from interlock.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.models import ToolDefinition
from interlock.models.scripted import ScriptedModel
from tests.support.conversations import is_valid
from tests.support.rows import each_row


def turn(number: int, result: int, rounds: int = 1) -> list[Message]:
    """A question, calls with results of so many characters, and an answer."""
    messages: list[Message] = [UserMessage(f"question {number}")]
    for each in range(rounds):
        id = f"{number}-{each}"
        messages.append(AssistantMessage("", (ToolCall(id, "s__read", {"n": number}),)))
        messages.append(ToolMessage(id, "x" * result, "s__read"))
    return [*messages, AssistantMessage(f"answer {number}")]


@given(
    turns=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 3)), min_size=1, max_size=6),
    limit=st.integers(1, 20_000),
    is_open=st.booleans(),
)
def test_calls_stay_paired_and_instructions_and_last_question_stay(
    turns: list[tuple[int, int]], limit: int, is_open: bool
):
    messages: list[Message] = [SystemMessage("Be brief.")]
    for number, (result, rounds) in enumerate(turns):
        messages += turn(number, result, rounds)
    messages.append(UserMessage("last"))
    if is_open:
        messages += turn(99, 3_000, 2)[1:-1]
    before = list(messages)

    request = fit(messages, limit)

    assert messages == before
    assert is_valid(request.messages)
    assert request.messages[0] == SystemMessage("Be brief.")
    assert UserMessage("last") in request.messages
    assert request.messages[-1] == messages[-1]
    assert (request.left_out == 0) == (request.messages == messages)
    if size_of(messages) <= limit:
        assert request.messages == messages
    elif not is_open and limit > 100:
        assert size_of(request.messages) <= limit


def test_results_of_earlier_turns_are_left_out_before_whole_turns():
    messages = [*turn(1, 1_000), *turn(2, 1_000), UserMessage("last")]

    first = fit(messages, size_of(messages) - 1)
    both = fit(messages, size_of(messages) - 1_000)
    whole = fit(messages, 80)

    assert [each.content[:24] for each in first.messages if isinstance(each, ToolMessage)] == [
        "[this result is left out",
        "x" * 24,
    ]
    assert (first.left_out, both.left_out) == (1, 2)
    assert whole.messages == [UserMessage("[8 earlier messages are left out]"), messages[-1]]


@each_row(("error", "part"), [((100, 200), 0.45), ((0, 0), 0.45)])
def test_context_limit_is_read_from_the_error_or_halved(error: tuple[int, int], part: float):
    limits = ContextLimits()
    messages = [*turn(1, 9_000), *turn(2, 500), UserMessage("last")]
    request = limits.request("m", messages)

    assert limits.learn("m", request, ContextTooLong("too long", *error))

    assert size_of(limits.request("m", messages).messages) <= part * size_of(messages)
    assert limits.request("other", messages).messages == messages
    assert not limits.learn("m", limits.request("m", [UserMessage("x" * 900)]), ContextTooLong(""))


async def test_agent_shortens_the_request_once_and_keeps_the_conversation():
    def refuse_long(messages: Sequence[Message], _: Sequence[ToolDefinition]) -> AssistantMessage:
        if size_of(messages) > 3_000:
            raise ContextTooLong("prompt is too long", 1_000, 2_000)
        return AssistantMessage("Yes.")

    model = ScriptedModel([refuse_long] * 3, name="scripted:context")
    messages = [*turn(1, 5_000), UserMessage("last")]
    before = list(messages)

    events = [event async for event in Agent(model).stream(messages)]
    messages.append(UserMessage("again"))
    later = [event async for event in Agent(model).stream(messages)]

    assert [each for each in events if isinstance(each, Compacted)] == [Compacted(1)]
    assert isinstance(events[-1], Done)
    assert messages[: len(before)] == before
    assert len(model.requests) == 3  # the second turn is not refused first
    assert Compacted(1) in later


async def test_question_that_alone_is_too_long_is_refused():
    model = ScriptedModel([ContextTooLong("prompt is too long")], name="scripted:question")

    with pytest.raises(ContextTooLong):
        await Agent(model).complete([UserMessage("x" * 10_000)])
