"""The first token of a provider is shown before anything else of the answer is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import pytest

from interlock.agent import Agent
from interlock.chat import open_chat
from interlock.errors import ModelUnavailable
from interlock.messages import AssistantMessage, Message, UserMessage
from interlock.models import ModelEvent, Reply, TextDelta, ToolDefinition, learned
from interlock.models.http import model_api
from interlock.models.learned import Lesson
from tests.models import wire_anthropic, wire_openai, wire_responses
from tests.models.wire_http import Answer, WireServer

ANSWERS = {
    "anthropic": wire_anthropic.says("First", "second"),
    "openai": wire_openai.says("First", "second"),
    "deepseek": wire_openai.says("First", "second"),
    "responses": wire_responses.answer(wire_responses.message("First and second")),
}


def begun(answer: Answer) -> Answer:
    """Return an answer that never goes on after its first token."""
    mark = b"output_text.delta" if b"output_text.delta" in answer.body else b"First"
    end = answer.body.index(b"\n\n", answer.body.index(mark)) + 2
    return answer._replace(body=answer.body[:end], hangs=True)


@pytest.fixture(params=ANSWERS)
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, WireServer]]:
    server = {"anthropic": wire_anthropic.server(), "responses": wire_responses.server()}.get(
        request.param, wire_openai.server()
    )
    await server.start()
    server.script = [begun(ANSWERS[request.param])]
    yield request.param, server
    await server.stop()
    assert server.problems == []


async def test_first_token_of_a_provider_is_shown_before_the_next_one_is_sent(
    provider: tuple[str, WireServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, server = provider
    for name in ("ANTHROPIC", "OPENAI", "DEEPSEEK"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-x")
    root = server.root if kind == "anthropic" else f"{server.root}/v1"
    model = f"{'openai' if kind == 'responses' else kind}:test@{root}"
    if kind == "responses":
        learned.note(model, Lesson("responses"))

    async with Agent(model) as agent, aclosing(agent.stream([UserMessage("Hello")])) as events:
        first = await anext(events)

    assert isinstance(first, TextDelta)
    assert first.text.startswith("First")


async def test_chat_creates_the_client_of_its_model_before_the_first_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("INTERLOCK_DATABASE", "/dev/null/none.db")  # costs a second less
    made: list[str] = []
    load = model_api._import
    monkeypatch.setattr(model_api, "_import", lambda: made.append("") or load())
    model = "openai:test@http://127.0.0.1:9/v1"

    async with open_chat(None, model=model, warn=made.append) as chat:
        assert made.count("") == 1
        with pytest.raises(ModelUnavailable):
            await anext(chat.ask("Hello"))

    assert made.count("") == 1


async def test_event_of_a_model_is_yielded_without_an_extra_turn_of_the_loop() -> None:
    model = TurnCounting()
    turns = []

    async with aclosing(Agent(model).stream([UserMessage("Hello")])) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                turns.append(model.turns_since_last)

    assert turns == [0, 0, 0]
    assert model.longest_lead == 1  # nothing is read before the event before it was taken


class TurnCounting:
    """Answers in three pieces; counts the turns of the event loop until each was taken."""

    name = "counting:1"

    def __init__(self) -> None:
        self.turns_since_last = 0
        self.longest_lead = 0

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        waiting = 0
        for piece in "abc":
            await asyncio.sleep(0)
            self.turns_since_last = 0
            asyncio.get_running_loop().call_soon(self._turn)
            waiting += 1
            self.longest_lead = max(waiting, self.longest_lead)
            yield TextDelta(piece)
            waiting -= 1
        yield Reply(AssistantMessage("abc"))

    def _turn(self) -> None:
        self.turns_since_last += 1

    async def close(self) -> None:
        """Hold nothing open."""
