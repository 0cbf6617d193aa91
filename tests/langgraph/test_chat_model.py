"""One of our models in a graph: nothing of its answer is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from interlock.agent import AgentEvent, Done
from interlock.errors import ModelInterrupted
from interlock.langgraph.agent import GraphAgent, agent_graph
from interlock.messages import AssistantMessage, Attachment, Message, Usage, UserMessage
from interlock.models import Notice, ReasoningDelta, Reply, TextDelta


class Talking:
    """A model that reasons, remarks on itself and counts tokens."""

    name = "talking"

    def __init__(self, *said: Any) -> None:
        self._said = said
        self.asked: list[list[Message]] = []

    async def stream(self, messages: Sequence[Message], _: object = ()) -> AsyncIterator[Any]:
        self.asked.append([*messages])
        for event in self._said:
            yield event

    async def close(self) -> None: ...


async def events_of(model: Talking, messages: list[Message]) -> list[AgentEvent]:
    agent = GraphAgent(model, graph=agent_graph())
    return [event async for event in agent.stream(messages)]


async def test_reasoning_notices_usage_and_data_of_the_provider_are_kept():
    data = {"provider": "x", "signature": "s"}
    reply = Reply(AssistantMessage("Hi.", provider_data=data), Usage(7, 2, 5), "length")
    said = Talking(Notice("it is slow"), ReasoningDelta("Hm."), TextDelta("Hi."), reply)
    messages: list[Message] = [UserMessage("Look", (Attachment("image/png", b"png"),))]
    events = await events_of(said, messages)

    assert said.asked == [messages[:1]]
    last = AssistantMessage("Hi.", provider_data=data, usage=Usage(7, 2, 5))
    assert messages[1:] == [last]
    assert events == [
        *(Notice("it is slow"), ReasoningDelta("Hm."), TextDelta("Hi.")),
        Done(last, Usage(7, 2, 5), "length"),
    ]


async def test_answer_that_is_cut_off_is_not_kept():
    messages: list[Message] = [UserMessage("go")]
    with pytest.raises(ModelInterrupted):
        await events_of(Talking(TextDelta("Half")), messages)

    assert messages == [UserMessage("go")]
