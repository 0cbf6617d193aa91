"""Ask, act, repeat: what is in the conversation afterwards, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from interlock import agent as agent_module
from interlock.agent import MAX_CALLS, MAX_RESULT, Agent, Done, ToolFinished, ToolStarted, text_of
from interlock.errors import ModelInterrupted, ModelUnavailable, RemoteError, StepLimit, StoreError
from interlock.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    interrupted,
)
from interlock.models import (
    ModelEvent,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolDefinition,
    Usage,
)
from interlock.models.answer_size import MAX_ANSWER_BYTES
from interlock.models.scripted import Scripted, ScriptedModel
from interlock.toolbox import Toolbox
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    UnknownContent,
)
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def asks(*calls: tuple[str, str, Json]) -> list[ToolCall]:
    """What the model asks for: id, wire name, arguments."""
    return [ToolCall(id, name, arguments) for id, name, arguments in calls]


async def answer(params: Json) -> Json:
    """Be the server's tools."""
    if params["name"] == "fail":
        return text("it failed", isError=True)
    if params["name"] == "refuse":
        raise RemoteError(-32000, "not today")
    await asyncio.sleep(0)
    return text(params.get("arguments", {}).get("text", ""))


@asynccontextmanager
async def tools() -> AsyncIterator[Toolbox]:
    echo = tool("echo", description="Say it again.", inputSchema=TEXT)
    listed = {"tools": [echo, tool("fail"), tool("refuse")]}
    server = ScriptedServer(answers={"tools/list": listed, "tools/call": answer})
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        yield toolbox


def valid(messages: Sequence[Message]) -> bool:
    """Tell whether each call is answered, right after it, in the order of the calls."""
    expected: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if not expected or expected.pop(0) != message.tool_call_id:
                return False
        elif expected:
            return False
        if isinstance(message, AssistantMessage):
            expected = [call.id for call in message.tool_calls]
    return not expected


def begun() -> list[Message]:
    return [SystemMessage("Be brief."), UserMessage("Hello")]


async def complete(*replies: Scripted, **options: Any) -> tuple[list[Message], ScriptedModel]:
    """Let the model say its replies, with tools; give the conversation after that."""
    model, messages = ScriptedModel(replies), begun()
    async with tools() as toolbox:
        assert await Agent(model, toolbox, **options).complete(messages) is messages[-1]
    assert valid(messages)
    return messages, model


# Without and with tools


async def test_an_answer_is_added_to_the_conversation():
    model, messages = ScriptedModel(["Good day."]), begun()

    answer = await Agent(model).complete(messages)

    assert answer == AssistantMessage("Good day.")
    assert messages == [*begun(), answer]
    assert model.requests[0].messages == tuple(begun())
    assert model.requests[0].tools == ()


async def test_a_tool_is_called_and_its_result_goes_to_the_model():
    call = asks(("1", "s__echo", {"text": "twice"}))
    messages, model = await complete(call, "Done.")

    assert messages[2:] == [
        AssistantMessage(tool_calls=tuple(call)),
        ToolMessage("1", "twice", "s__echo"),
        AssistantMessage("Done."),
    ]
    assert model.requests[1].messages == tuple(messages[:-1])
    assert model.requests[0].tools[0] == ToolDefinition(
        "s__echo",
        "Say it again.",
        b'{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}',
    )


async def test_a_stream_tells_what_happens():
    model = ScriptedModel([AssistantMessage("Let me see.", asks_tuple()), "It is so."])
    async with tools() as toolbox:
        events = [event async for event in Agent(model, toolbox).stream(begun())]

    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(deltas) == "Let me see.It is so."
    started, finished = (
        next(event for event in events if isinstance(event, kind))
        for kind in (ToolStarted, ToolFinished)
    )
    assert started == ToolStarted("1", "s:echo", {"text": "a"})
    assert (finished.id, finished.address, finished.arguments) == ("1", "s:echo", {"text": "a"})
    assert (finished.result, finished.is_error) == ("a", False)
    assert finished.duration >= 0
    assert events.index(started) < events.index(finished)
    assert events[-1] == Done(AssistantMessage("It is so."), Usage(), "end")


def asks_tuple() -> tuple[ToolCall, ...]:
    return tuple(asks(("1", "s__echo", {"text": "a"})))


async def test_usage_is_that_of_all_rounds():
    class Counting(ScriptedModel):
        async def stream(self, *given: Any) -> AsyncGenerator[ModelEvent, None]:
            async for event in super().stream(*given):
                if isinstance(event, Reply):
                    event = Reply(event.message, Usage(10, 1), "length")
                yield event

    async with tools() as toolbox:
        agent = Agent(Counting([asks(("1", "s__echo", {"text": "a"})), "Done."]), toolbox)
        events = [event async for event in agent.stream(begun())]

    assert events[-1] == Done(AssistantMessage("Done."), Usage(20, 2), "length")


# Several calls at once


async def test_calls_run_at_once_and_their_answers_come_in_order():
    together = asyncio.Barrier(3)
    finish = {name: asyncio.Event() for name in "abc"}

    async def hold(params: Json) -> Json:
        name = params["arguments"]["text"]
        await together.wait()
        await finish[name].wait()
        return text(name)

    server = ScriptedServer(
        answers={"tools/list": {"tools": [tool("echo", inputSchema=TEXT)]}, "tools/call": hold}
    )
    model = ScriptedModel([asks(*((name, "s__echo", {"text": name}) for name in "abc")), "Done."])
    messages, order = begun(), []
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        async for event in Agent(model, toolbox).stream(messages):
            if isinstance(event, ToolStarted) and event.id == "c":
                finish["c"].set()
            if isinstance(event, ToolFinished):
                order.append(event.id)
                finish["a" if event.id == "c" else "b"].set()

    assert order == ["c", "a", "b"]
    assert [m.content for m in messages if isinstance(m, ToolMessage)] == ["a", "b", "c"]
    assert valid(messages)


# What the model can repair


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (ToolCall("1", "s__fail"), "it failed"),
        (ToolCall("1", "s__refuse"), "error: not today (-32000)"),
        (ToolCall("1", "echo"), "error: no tool 'echo'"),
        (ToolCall("1", "s__echo", {}), "error: s:echo: "),
        (ToolCall("1", "s__echo", malformed="{'a'"), "error: the arguments are not a JSON object"),
    ],
    ids=["failed", "refused", "unknown", "arguments", "malformed"],
)
async def test_what_went_wrong_is_told_to_the_model(call: ToolCall, result: str):
    messages, model = await complete([call], "I see.")

    told = messages[3]
    assert isinstance(told, ToolMessage)
    assert told.is_error
    assert told.content.startswith(result)
    assert (told.tool_call_id, told.name) == ("1", call.name)
    assert model.requests[1].messages[-1] is told


async def test_one_call_that_fails_does_not_lose_the_others():
    calls = asks(("1", "s__fail", {}), ("2", "s__echo", {"text": "b"}), ("3", "nothing", {}))
    messages, _ = await complete(calls, "I see.")

    assert [m.is_error for m in messages if isinstance(m, ToolMessage)] == [True, False, True]


async def test_without_a_toolbox_every_tool_is_unknown():
    model, messages = ScriptedModel([asks(("1", "s__echo", {})), "I see."]), begun()
    await Agent(model).complete(messages)

    assert messages[3] == ToolMessage("1", "error: no tool 's__echo'", "s__echo", is_error=True)
    assert valid(messages)


async def test_a_bug_in_the_program_is_not_shown_to_the_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def fail(*_: object, **__: object) -> CallToolResult:
        raise KeyError("a secret")

    monkeypatch.setattr(Toolbox, "call", fail)
    messages, _ = await complete(asks(("1", "s__echo", {"text": "a"})), "I see.")

    assert isinstance(messages[3], ToolMessage)
    assert messages[3].is_error
    assert "secret" not in messages[3].content
    assert "calling s__echo failed" in caplog.text


async def test_calls_beyond_the_limit_do_not_run_and_the_model_is_told():
    calls = asks(*((str(n), "s__echo", {"text": "a"}) for n in range(MAX_CALLS + 3)))
    messages, model = await complete(calls, "I see.")

    results = [message for message in messages if isinstance(message, ToolMessage)]
    assert [each.content for each in results[:MAX_CALLS]] == ["a"] * MAX_CALLS
    assert all(each.is_error for each in results[MAX_CALLS:])
    assert {each.content for each in results[MAX_CALLS:]} == {
        "error: not run: one answer may make 64 tool calls; call it in your next one"
    }
    assert model.requests[1].messages == tuple(messages[:-1])


# What it cannot


@pytest.mark.parametrize(
    "answer",
    [
        AssistantMessage("x" * (MAX_ANSWER_BYTES + 1)),
        AssistantMessage(tool_calls=(ToolCall("1", "s__echo", {"text": "x" * MAX_ANSWER_BYTES}),)),
        AssistantMessage(provider_data={"content": "x" * MAX_ANSWER_BYTES}),
    ],
    ids=["text", "arguments", "provider_data"],
)
async def test_an_answer_over_the_size_limit_is_refused_and_not_recorded(answer: AssistantMessage):
    messages, record = begun(), Record()
    async with tools() as toolbox:
        agent = Agent(ScriptedModel([answer]), toolbox, record=record)
        with pytest.raises(ModelInterrupted, match=r"too long \(limit 4 MiB\)"):
            await agent.complete(messages)

    assert messages == record.messages == begun()


async def test_a_stream_over_the_size_limit_is_closed():
    closed = False

    class Endless(ScriptedModel):
        async def stream(self, *_: Any) -> AsyncGenerator[ModelEvent, None]:
            nonlocal closed
            try:
                while True:
                    yield ReasoningDelta("x" * 100_000)
            finally:
                closed = True

    with pytest.raises(ModelInterrupted, match="too long"):
        await Agent(Endless([])).complete(begun())
    assert closed


@pytest.mark.parametrize(("options", "rounds"), [({}, 10), ({"max_rounds": 2}, 2)])
async def test_a_model_that_never_stops_calling_is_stopped(options: Json, rounds: int):
    model = ScriptedModel([asks((str(n), "s__echo", {"text": "a"})) for n in range(20)])
    messages = begun()
    async with tools() as toolbox:
        with pytest.raises(StepLimit, match=f"after {rounds} rounds"):
            await Agent(model, toolbox, **options).complete(messages)

    assert len(model.requests) == rounds
    assert len(messages) == 2 + 2 * rounds
    assert valid(messages)


async def test_a_model_that_fails_leaves_what_was_complete():
    model = ScriptedModel([asks(("1", "s__echo", {"text": "a"})), ModelUnavailable("no key")])
    messages = begun()
    async with tools() as toolbox:
        with pytest.raises(ModelUnavailable, match="no key"):
            await Agent(model, toolbox).complete(messages)

    assert len(messages) == 4
    assert valid(messages)


async def test_an_answer_that_is_cut_off_is_not_part_of_the_conversation():
    class Cut(ScriptedModel):
        async def stream(self, *_: Any) -> AsyncGenerator[ModelEvent, None]:
            yield TextDelta("Well, ")

    messages = begun()
    with pytest.raises(ModelInterrupted, match="the answer of scripted was cut off"):
        await Agent(Cut([])).complete(messages)
    assert messages == begun()


# Stopped half-way


class Record:
    """A store: slow, and in the order in which it was asked to write."""

    def __init__(self) -> None:
        self.messages: list[Message] = begun()

    async def __call__(self, new: Sequence[Message]) -> None:
        for _ in range(9 if isinstance(new[0], AssistantMessage) else 1):
            await asyncio.sleep(0)
        self.messages += new


CALLS = asks(("1", "s__echo", {"text": "a"}), ("2", "s__fail", {}), ("3", "s__echo", {"text": "c"}))
SCRIPT: list[Scripted] = [AssistantMessage("Let me see.", tuple(CALLS)), CALLS[:1], "Done."]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
async def test_cancelled_at_any_point_the_conversation_is_valid_and_stored(again: bool):
    finished = False
    for turns in range(500):
        messages, record = begun(), Record()
        async with tools() as toolbox:
            agent = Agent(ScriptedModel(SCRIPT), toolbox, record=record)
            running = asyncio.create_task(agent.complete(messages))
            for _ in range(turns):
                await asyncio.sleep(0)
            finished = running.done()
            running.cancel()
            if again:
                await asyncio.sleep(0)
                running.cancel()
            await asyncio.wait({running})
            if again:
                await settle()  # who is in such a hurry does not wait for the record

        assert valid(messages), turns
        assert record.messages == messages, turns
        if finished:
            break
    assert finished
    assert len(messages) == 2 + 4 + 2 + 1


async def test_closed_after_any_event_the_conversation_is_valid_and_stored():
    for count in range(500):
        messages, record = begun(), Record()
        async with tools() as toolbox:
            agent = Agent(ScriptedModel(SCRIPT), toolbox, record=record)
            seen = 0
            async with aclosing(agent.stream(messages)) as events:
                async for event in events:
                    seen += 1
                    if seen > count or isinstance(event, Done):
                        break
        assert valid(messages), count
        assert record.messages == messages, count
        if isinstance(event, Done):
            return
    raise AssertionError("never done")


async def test_a_call_that_was_stopped_says_that_it_may_have_had_an_effect():
    called = asyncio.Event()

    async def never(_: Json) -> Json:
        called.set()
        return await asyncio.get_running_loop().create_future()

    server = ScriptedServer(answers={"tools/list": {"tools": [tool("x")]}, "tools/call": never})
    messages = begun()
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        agent = Agent(ScriptedModel([asks(("1", "s__x", {}))]), toolbox)
        running = asyncio.create_task(agent.complete(messages))
        await called.wait()
        running.cancel()
        await asyncio.wait({running})
        await server.heard("notifications/cancelled")  # the server was told to stop, too

    assert messages[-1] == interrupted(ToolCall("1", "s__x"))


# Recording


async def test_a_call_is_recorded_before_it_runs():
    happened: list[str] = []

    async def record(new: Sequence[Message]) -> None:
        await asyncio.sleep(0)
        happened.extend(type(message).__name__ for message in new)

    async def call(_: Json) -> Json:
        happened.append("the tool runs")
        return text("done")

    server = ScriptedServer(answers={"tools/list": {"tools": [tool("x")]}, "tools/call": call})
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        model = ScriptedModel([asks(("1", "s__x", {}), ("2", "s__x", {})), "Done."])
        await Agent(model, toolbox, record=record).complete(begun())

    assert happened == [
        "AssistantMessage",
        *["the tool runs"] * 2,
        *["ToolMessage"] * 2,
        "AssistantMessage",
    ]


async def test_what_cannot_be_recorded_is_not_run():
    async def refuse(_: Sequence[Message]) -> None:
        raise StoreError("the disk is full")

    called: list[Json] = []
    server = ScriptedServer(
        answers={"tools/list": {"tools": [tool("x")]}, "tools/call": lambda p: called.append(p)}
    )
    messages = begun()
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        model = ScriptedModel([asks(("1", "s__x", {})), "Done."])
        with pytest.raises(StoreError, match="the disk is full"):
            await Agent(model, toolbox, record=refuse).complete(messages)

    assert called == []
    assert valid(messages)


# The model


async def test_a_model_given_by_name_is_closed_with_the_agent(monkeypatch: pytest.MonkeyPatch):
    closed: list[str] = []

    class Closing(ScriptedModel):
        async def close(self) -> None:
            closed.append(self.name)

    async def choose(name: str | None) -> ScriptedModel:
        return Closing(["Good day."], name=name or "chosen")

    monkeypatch.setattr(agent_module.choose, "choose", choose)
    for name in ("scripted:x", None):
        async with Agent(name) as agent:
            await agent.complete(begun())
    own = Closing(["Good day."], name="own")
    async with Agent(own) as agent:
        await agent.complete(begun())

    assert closed == ["scripted:x", "chosen"]


async def test_an_agent_that_is_used_after_its_end_lets_go_of_its_model_again(monkeypatch):
    connected = False

    class Connecting(ScriptedModel):
        async def stream(self, *asked: Any) -> AsyncGenerator[ModelEvent, None]:
            nonlocal connected
            connected = True
            async for event in super().stream(*asked):
                yield event

        async def close(self) -> None:
            nonlocal connected
            connected = False

    async def choose(name: str | None) -> ScriptedModel:
        return Connecting(["One.", "Two."])

    monkeypatch.setattr(agent_module.choose, "choose", choose)
    agent = Agent("scripted:x")
    for _ in range(2):
        await agent.complete(begun())
        assert connected
        await agent.close()
        assert not connected


async def test_new_tools_are_offered_from_the_next_round_on():
    offered = [["a"], ["a", "b"]]
    server = ScriptedServer(
        answers={
            "tools/list": lambda _: {"tools": [tool(name) for name in offered[0]]},
            "tools/call": lambda _: server.notify("notifications/tools/list_changed") or text(""),
        },
        capabilities={"tools": {"listChanged": True}},
    )
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        model = ScriptedModel([asks(("1", "s__a", {})), "Done."])
        offered.pop(0)
        await Agent(model, toolbox).complete(begun())

    first, second = ([each.name for each in request.tools] for request in model.requests)
    assert (first, second) == (["s__a"], ["s__a", "s__b"])


async def test_of_malformed_arguments_the_model_gets_the_beginning():
    call = ToolCall("1", "s__echo", malformed="[" * 10_000)
    messages = begun()
    model = ScriptedModel([AssistantMessage(tool_calls=(call,)), "Done."])
    await Agent(model).complete(messages)

    assert "[[[" in messages[-2].content
    assert len(messages[-2].content) < 1_000


async def test_stopped_it_waits_until_its_calls_have_ended(monkeypatch):
    begun_call, ended = asyncio.Event(), asyncio.Event()

    async def slow(*_: object, **__: object) -> CallToolResult:
        begun_call.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            ended.set()

    monkeypatch.setattr(Toolbox, "call", slow)
    async with tools() as toolbox:
        model = ScriptedModel([asks(("1", "s__echo", {"text": "a"}))])
        answering = asyncio.create_task(Agent(model, toolbox).complete(begun()))
        await begun_call.wait()
        answering.cancel()
        await asyncio.wait([answering])

        assert ended.is_set()


async def test_a_list_of_tools_that_is_no_longer_fresh_is_renewed_for_the_next_question(
    monkeypatch,
):
    now = 1_000.0
    monkeypatch.setattr("interlock.toolbox.upstream.monotonic", lambda: now)
    offered = ["a"]
    server = ScriptedServer(answers={"tools/list": lambda _: {"tools": [*map(tool, offered)]}})
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        model = ScriptedModel(["One.", "Two."])
        await Agent(model, toolbox).complete(begun())
        offered.append("b")
        now += 1_000.0
        await Agent(model, toolbox).complete(begun())

    first, second = ([each.name for each in request.tools] for request in model.requests)
    assert (first, second) == (["s__a"], ["s__a", "s__b"])


# Results as text


@pytest.mark.parametrize(
    ("block", "written"),
    [
        (TextContent(text="one\ntwo"), "one\ntwo"),
        (ImageContent(data="AAAA", mime_type="image/png"), "[image/png, 3 bytes]"),
        (AudioContent(data="AAAAAAAA", mime_type="audio/wav"), "[audio/wav, 6 bytes]"),
        (EmbeddedResource(resource=ResourceContents(uri="a:b", text="inside")), "inside"),
        (EmbeddedResource(resource=ResourceContents(uri="a:b", blob="AA")), "[resource a:b]"),
        (ResourceLink(uri="a:b", name="b"), "[resource a:b]"),
        (UnknownContent(fields={"type": "new"}), "[content of an unknown type]"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_content_is_written_for_the_model(block: Content, written: str):
    assert text_of(CallToolResult(content=[block])) == written


def test_blocks_stand_on_lines_of_their_own():
    blocks: list[Content] = [TextContent(text="a"), ResourceLink(uri="x:y"), TextContent(text="b")]

    assert text_of(CallToolResult(content=blocks)) == "a\n[resource x:y]\nb"
    assert text_of(CallToolResult()) == ""


def test_a_structure_stands_in_for_missing_content_only():
    structure = {"a": [1, None]}

    assert text_of(CallToolResult(structured_content=structure)) == '{"a":[1,null]}'
    both = CallToolResult(content=[TextContent(text="a")], structured_content=structure)
    assert text_of(both) == "a"


def test_an_oversized_result_is_cut_and_says_so():
    fits, over = "a" * MAX_RESULT, "a" * (MAX_RESULT + 7)

    assert text_of(CallToolResult(content=[TextContent(text=fits)])) == fits
    assert text_of(CallToolResult(content=[TextContent(text=over)])) == (
        fits + "\n[cut: 7 more characters]"
    )


async def test_answers_that_begin_at_once_share_the_model_they_choose(monkeypatch):
    chosen = []

    async def choose_one(name):
        await asyncio.sleep(0)
        chosen.append(name)
        return ScriptedModel(["one", "two"])

    monkeypatch.setattr("interlock.agent.choose.choose", choose_one)

    async with Agent("some:model") as agent:
        await asyncio.gather(*(agent.complete([UserMessage("Hi")]) for _ in range(2)))

    assert chosen == ["some:model"]
