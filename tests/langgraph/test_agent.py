"""A chat graph as an agent: the same events and messages as those of `Agent`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.agent import Agent, AgentEvent, Done, ToolFinished, ToolStarted
from interlock.agent.tool_calls import MAX_CALLS, TOO_MANY_CALLS
from interlock.calls import Call
from interlock.errors import StepLimit
from interlock.langgraph.agent import GraphAgent, agent_graph
from interlock.messages import (
    SEARCH_TOOLS,
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    interrupted,
)
from interlock.models.scripted import ScriptedModel
from interlock.toolbox import Toolbox
from interlock.web.chat.engines import agents_of
from tests.support.scripted_server import Json, text
from tests.support.toolboxes import box, described, kb

GRAPH = agent_graph(max_rounds=3)
GET = ToolCall("c1", "kb__get", {"x": 1})


def answer(params: Json) -> Json:
    x = params["arguments"].get("x")
    return text("it is broken", isError=True) if x == "bad" else text(f"got {x}")


@asynccontextmanager
async def opened(call: Callable[[Json], Any] = answer) -> AsyncIterator[Toolbox]:
    async with box(kb([described("get")], call)) as toolbox:
        yield toolbox


def graph_agent(model: Any, toolbox: Toolbox | None = None, **options: Any) -> GraphAgent:
    return GraphAgent(model, toolbox, graph=GRAPH, **options)


async def events_of(agent: Agent, messages: list[Message]) -> list[AgentEvent]:
    return [event async for event in agent.stream(messages)]


SCRIPT = [
    AssistantMessage("Let me see.", (GET, ToolCall("c2", "kb__get", {"x": "bad"}))),
    [ToolCall("c3", "kb__nothing"), ToolCall("c4", "kb__get", malformed='{"x": ')],
    "Done.",
]


async def test_events_and_recorded_messages_equal_the_events_and_messages_of_the_agent():
    seen = []
    for make in (Agent, graph_agent):
        recorded: list[Message] = []

        async def record(new: Sequence[Message], recorded: list[Message] = recorded) -> None:
            recorded.extend(new)

        messages: list[Message] = [SystemMessage("Be brief."), UserMessage("go")]
        model = ScriptedModel(SCRIPT)
        async with opened() as toolbox:
            events = await events_of(make(model, toolbox, record=record, progress=True), messages)
        assert messages[2:] == recorded
        requests = [each.messages for each in model.requests]
        told = [plain(each) for each in events if not isinstance(each, ToolFinished)]
        results = {each.id: plain(each) for each in events if isinstance(each, ToolFinished)}
        seen.append((recorded, requests, told, results))

    assert seen[0] == seen[1]


def plain(event: AgentEvent) -> Any:
    """Return an event without ids and times of its own."""
    if isinstance(event, ToolStarted | ToolFinished):
        result = event.result if isinstance(event, ToolFinished) else None
        return type(event).__name__, event.id, event.address, event.arguments, result
    return event


async def test_images_and_sounds_of_a_tool_reach_the_model_and_are_recorded():
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    sound = {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}
    messages: list[Message] = [UserMessage("go")]
    model = ScriptedModel([[GET], "Nice."])
    async with opened(lambda _: {"content": [image, sound]}) as toolbox:
        await events_of(graph_agent(model, toolbox), messages)

    result = model.requests[1].messages[-1]
    assert result == messages[2]
    assert isinstance(result, ToolMessage)
    assert result.content == "[image/png, 3 bytes]\n[audio/wav, 3 bytes]"
    assert result.attachments == (
        Attachment("image/png", bytes(3)),
        Attachment("audio/wav", bytes(3)),
    )


async def test_stopped_answer_leaves_a_result_for_each_call():
    waiting = asyncio.Event()

    async def slow(params: Json) -> Json:
        if params["arguments"].get("x") == 1:
            return text("got 1")
        waiting.set()
        await asyncio.Event().wait()
        return text("never")

    calls = (GET, ToolCall("c2", "kb__get", {"x": 2}))
    messages: list[Message] = [UserMessage("go")]
    async with opened(slow) as toolbox:
        agent = graph_agent(ScriptedModel([calls]), toolbox)
        async with aclosing(agent.stream(messages)) as events:
            async for event in events:
                if isinstance(event, ToolFinished):
                    await waiting.wait()
                    break

    assert isinstance(messages[1], AssistantMessage)
    assert messages[2].content == "got 1"  # type: ignore[union-attr]
    assert messages[3] == interrupted(calls[1])


async def test_call_is_recorded_and_shown_before_it_is_made():
    order: list[str] = []

    async def record(new: Sequence[Message]) -> None:
        order.append(
            f"recorded {new[0].role}" if hasattr(new[0], "role") else type(new[0]).__name__
        )

    class Watched(Toolbox):
        async def handle(self, call: Call) -> Any:  # type: ignore[override]
            order.append("made")
            return await super().handle(call)

    async with Watched({"kb": kb([described("get")], answer)}, environ={}) as toolbox:
        agent = graph_agent(ScriptedModel([[GET], "ok"]), toolbox, record=record)
        async for event in agent.stream([UserMessage("go")]):
            if isinstance(event, ToolStarted):
                await asyncio.sleep(0)  # a reader that is slow
                order.append("shown")

    assert order[:3] == ["AssistantMessage", "shown", "made"]


async def test_calls_beyond_the_limit_do_not_run_and_get_an_error_for_the_model():
    ran = 0

    def count(_: Json) -> Json:
        nonlocal ran
        ran += 1
        return text("got it")

    asked = [ToolCall(f"c{number}", "kb__get", {"x": 1}) for number in range(MAX_CALLS + 2)]
    messages: list[Message] = [UserMessage("go")]
    async with opened(count) as toolbox:
        events = await events_of(graph_agent(ScriptedModel([asked, "ok"]), toolbox), messages)

    assert ran == MAX_CALLS
    results = [each.content for each in messages if isinstance(each, ToolMessage)]
    assert results == ["got it"] * MAX_CALLS + [TOO_MANY_CALLS] * 2
    endings = {each.id: each.ending for each in events if isinstance(each, ToolFinished)}
    assert [id for id, ending in endings.items() if ending == "refused"] == ["c64", "c65"]


async def test_limit_of_rounds_starts_over_when_the_model_continues():
    messages: list[Message] = [UserMessage("go")]
    script = [[ToolCall(f"c{number}", "kb__get", {"x": 1})] for number in range(4)]
    async with opened() as toolbox:
        agent = graph_agent(ScriptedModel([*script, "ok"]), toolbox)
        with pytest.raises(StepLimit):
            await events_of(agent, messages)
        *_, done = await events_of(agent, messages)

    assert isinstance(done, Done)
    assert done.message.content == "ok"


async def test_search_for_tools_equals_that_of_the_agent() -> None:
    class Deferring(ScriptedModel):
        defers_tools = True

    shop = kb([described(f"list_{n}", description=f"List {n}.") for n in "abcdefgh"], answer)
    script = [
        [ToolCall("s1", SEARCH_TOOLS, {"query": "list a"})],
        [ToolCall("c1", "kb__list_a", {"x": 1}), ToolCall("s2", SEARCH_TOOLS, {"query": "none"})],
        "Done.",
    ]
    seen = []
    for kind in (ScriptedModel, Deferring):
        for engine in ("agent", "graph"):
            messages: list[Message] = [UserMessage("go")]
            model = kind(script)
            async with box(shop) as toolbox:
                agent = agents_of(engine, "on")(model, toolbox)
                await agent.complete(messages)
            tools = [[replace(each, address="") for each in r.tools] for r in model.requests]
            seen.append((messages, tools))
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert seen[0][0] == seen[2][0]
    assert [each.deferred for each in seen[3][1][0]] == [False] * 3 + [True]


async def test_searching_rounds_do_not_count_as_rounds_of_calls() -> None:
    searches = [[ToolCall(f"s{n}", SEARCH_TOOLS, {"query": "get"})] for n in range(5)]
    for rounds, error in ((3, False), (4, True)):
        called = [[ToolCall(f"c{n}", "kb__get", {"x": 1})] for n in range(rounds)]
        model = ScriptedModel([*searches, *called[:-1], called[-1] if error else "Done."])
        async with opened() as toolbox:
            agent = graph_agent(model, toolbox)
            if error:
                with pytest.raises(StepLimit):
                    await agent.complete([UserMessage("go")])
            else:
                await agent.complete([UserMessage("go")])
