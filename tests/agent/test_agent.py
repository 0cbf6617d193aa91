"""The agent: its events, its tool calls, and the conversation it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
import pytest

from interlock import Context, Server
from interlock.agent import (
    Agent,
    Done,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    text_of,
    tool_results,
)
from interlock.agent.tool_calls import MAX_CALLS
from interlock.calls import Call, Caller, CallHandler, Outcome
from interlock.errors import ModelInterrupted, ModelUnavailable, RemoteError, StepLimit, StoreError
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
    interrupted,
)
from interlock.models import ModelEvent, ReasoningDelta, Reply, TextDelta, ToolDefinition, Usage
from interlock.models.answer_size import MAX_ANSWER_BYTES
from interlock.models.scripted import Scripted, ScriptedModel
from interlock.toolbox import Toolbox
from interlock.toolbox.server_calls import ServerCalls
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
    UnknownContent,
)
from tests.support.conversations import is_valid
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def tool_calls(*calls: tuple[str, str, Json]) -> list[ToolCall]:
    """Return tool calls of a model: id, wire name, arguments."""
    return [ToolCall(id, name, arguments) for id, name, arguments in calls]


async def run_tool(params: Json) -> Json:
    """Run a tool of the test server."""
    if params["name"] == "fail":
        return text("it failed", isError=True)
    if params["name"] == "refuse":
        raise RemoteError(-32000, "not today")
    await asyncio.sleep(0)
    return text(params.get("arguments", {}).get("text", ""))


@asynccontextmanager
async def open_tools() -> AsyncIterator[Toolbox]:
    echo = tool("echo", description="Say it again.", inputSchema=TEXT)
    listed = {"tools": [echo, tool("fail"), tool("refuse")]}
    server = ScriptedServer(answers={"tools/list": listed, "tools/call": run_tool})
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        yield toolbox


def conversation() -> list[Message]:
    return [SystemMessage("Be brief."), UserMessage("Hello")]


async def complete(*replies: Scripted, **options: Any) -> tuple[list[Message], ScriptedModel]:
    """Run the agent with these replies and with tools; return the conversation and the model."""
    model, messages = ScriptedModel(replies), conversation()
    async with open_tools() as toolbox:
        assert await Agent(model, toolbox, **options).complete(messages) is messages[-1]
    assert is_valid(messages)
    return messages, model


# Answers and tool calls


async def test_complete_appends_the_answer_to_the_messages():
    model, messages = ScriptedModel(["Good day."]), conversation()

    answer = await Agent(model).complete(messages)

    assert answer == AssistantMessage("Good day.")
    assert messages == [*conversation(), answer]
    assert model.requests[0].messages == tuple(conversation())
    assert model.requests[0].tools == ()


async def test_a_tool_call_runs_and_its_result_goes_to_the_model():
    call = tool_calls(("1", "s__echo", {"text": "twice"}))
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
        "s:echo",
    )


async def test_stream_yields_text_and_tool_events_in_order():
    model = ScriptedModel([AssistantMessage("Let me see.", one_call()), "It is so."])
    async with open_tools() as toolbox:
        events = [event async for event in Agent(model, toolbox).stream(conversation())]

    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(deltas) == "Let me see.It is so."
    started, finished = (
        next(event for event in events if isinstance(event, kind))
        for kind in (ToolStarted, ToolFinished)
    )
    assert started == ToolStarted("1", "s:echo", {"text": "a"}, call_id=finished.call_id)
    assert started.call_id.startswith("c_")
    assert (finished.id, finished.address, finished.arguments) == ("1", "s:echo", {"text": "a"})
    assert (finished.result, finished.is_error) == ("a", False)
    assert finished.duration >= 0
    assert events.index(started) < events.index(finished)
    assert events[-1] == Done(AssistantMessage("It is so."), Usage(), "end")


async def test_duration_of_a_call_leaves_out_how_long_a_person_took_to_allow_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    for module in ("interlock.agent.tool_calls", "interlock.layers.delivery"):
        monkeypatch.setattr(f"{module}.monotonic", lambda: now)

    def slowly_allowed(handle: CallHandler) -> CallHandler:
        async def allowed(call: Call) -> Outcome:
            nonlocal now
            now += 26.0
            return await handle(call)

        return allowed

    server = Server("s")

    @server.tool
    def work() -> None:
        nonlocal now
        now += 2.0

    model = ScriptedModel([tool_calls(("1", "s__work", {})), "Done."])
    async with Toolbox({"s": server}, environ={}, around=[slowly_allowed]) as toolbox:
        events = [event async for event in Agent(model, toolbox).stream(conversation())]

    assert [each.duration for each in events if isinstance(each, ToolFinished)] == [2.0]


async def test_stream_yields_the_progress_of_a_tool_if_wanted() -> None:
    server = Server("s")

    @server.tool
    async def dig(context: Context) -> str:
        """Dig."""
        context.progress(1, 2, "half-way")
        return "done"

    model = ScriptedModel([tool_calls(("1", "s__dig", {})), "It is so."])
    async with Toolbox({"s": server}) as toolbox:
        agent = Agent(model, toolbox, progress=True)
        events = [event async for event in agent.stream([UserMessage("go")])]

    kinds = [type(event) for event in events]
    assert ToolProgress("1", 1, 2, "half-way") in events
    assert kinds.index(ToolStarted) < kinds.index(ToolProgress) < kinds.index(ToolFinished)


def one_call() -> tuple[ToolCall, ...]:
    return tuple(tool_calls(("1", "s__echo", {"text": "a"})))


async def test_usage_is_the_sum_of_all_rounds():
    class Counting(ScriptedModel):
        async def stream(self, *given: Any) -> AsyncGenerator[ModelEvent, None]:
            async for event in super().stream(*given):
                if isinstance(event, Reply):
                    event = Reply(event.message, Usage(10, 1), "length")
                yield event

    async with open_tools() as toolbox:
        agent = Agent(Counting([tool_calls(("1", "s__echo", {"text": "a"})), "Done."]), toolbox)
        events = [event async for event in agent.stream(conversation())]

    answer = AssistantMessage("Done.", usage=Usage(10, 1))
    assert events[-1] == Done(answer, Usage(20, 2), "length")


# Concurrent calls


async def test_concurrent_calls_have_their_results_in_the_calls_order():
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
    model = ScriptedModel(
        [tool_calls(*((name, "s__echo", {"text": name}) for name in "abc")), "Done."]
    )
    messages, order = conversation(), []
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        async for event in Agent(model, toolbox).stream(messages):
            if isinstance(event, ToolStarted) and event.id == "c":
                finish["c"].set()
            if isinstance(event, ToolFinished):
                order.append(event.id)
                finish["a" if event.id == "c" else "b"].set()

    assert order == ["c", "a", "b"]
    assert [m.content for m in messages if isinstance(m, ToolMessage)] == ["a", "b", "c"]
    assert is_valid(messages)


# Errors that the model can repair


@each_row(
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
async def test_a_failed_call_is_an_error_result_for_the_model(call: ToolCall, result: str):
    messages, model = await complete([call], "I see.")

    message = messages[3]
    assert isinstance(message, ToolMessage)
    assert message.is_error
    assert message.content.startswith(result)
    assert (message.tool_call_id, message.name) == ("1", call.name)
    assert model.requests[1].messages[-1] is message


@each_row(
    ("options", "caller"),
    [({}, Caller(surface="agent")), ({"caller": Caller(surface="web")}, Caller(surface="web"))],
)
async def test_calls_enter_the_stack_with_the_agents_caller(options: Json, caller: Caller):
    callers: list[Caller] = []

    def watch(handle: CallHandler) -> CallHandler:
        async def watched(call: Call) -> Outcome:
            callers.append(call.caller)
            return await handle(call)

        return watched

    server = ScriptedServer(
        answers={"tools/list": {"tools": [tool("echo")]}, "tools/call": run_tool}
    )
    model = ScriptedModel([tool_calls(("1", "s__echo", {})), "Done."])
    async with Toolbox({"s": server}, environ={}, around=[watch], revision=LEGACY) as toolbox:
        await Agent(model, toolbox, **options).complete(conversation())

    assert callers == [caller]


async def test_a_failed_call_does_not_affect_the_others():
    calls = tool_calls(("1", "s__fail", {}), ("2", "s__echo", {"text": "b"}), ("3", "nothing", {}))
    messages, _ = await complete(calls, "I see.")

    assert [m.is_error for m in messages if isinstance(m, ToolMessage)] == [True, False, True]


async def test_every_call_without_a_toolbox_is_an_error_result():
    model, messages = ScriptedModel([tool_calls(("1", "s__echo", {})), "I see."]), conversation()
    await Agent(model).complete(messages)

    assert messages[3] == ToolMessage("1", "error: no tool 's__echo'", "s__echo", is_error=True)
    assert is_valid(messages)


async def test_an_unexpected_exception_is_logged_and_not_shown_to_the_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def fail(*_: object, **__: object) -> CallToolResult:
        raise KeyError("a secret")

    monkeypatch.setattr(ServerCalls, "send", fail)
    messages, _ = await complete(tool_calls(("1", "s__echo", {"text": "a"})), "I see.")

    assert isinstance(messages[3], ToolMessage)
    assert messages[3].is_error
    assert "secret" not in messages[3].content
    assert "calling s__echo failed" in caplog.text


async def test_images_and_sounds_of_a_result_go_to_the_model_unless_they_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool_results, "MAX_FILE", 5)
    server = Server("eyes")

    @server.tool
    def look() -> list[ImageContent | AudioContent]:
        """Look."""
        return [
            ImageContent("cG5n", "image/PNG"),
            AudioContent("d2F2", "audio/wav"),
            ImageContent("bm90IHNtYWxs", "image/png"),
        ]

    messages: list[Message] = [UserMessage("Look.")]
    model = ScriptedModel([tool_calls(("1", "eyes__look", {})), "A cat."])
    async with Toolbox({"eyes": server}) as toolbox:
        await Agent(model, toolbox).complete(messages)

    result = model.requests[1].messages[-1]
    assert isinstance(result, ToolMessage)
    files = (Attachment("image/png", b"png"), Attachment("audio/wav", b"wav"))
    assert result.attachments == files
    assert result.content.splitlines()[:2] == ["[image/PNG, 3 bytes]", "[audio/wav, 3 bytes]"]


async def test_calls_beyond_the_limit_do_not_run_and_get_an_error_for_the_model():
    calls = tool_calls(*((str(n), "s__echo", {"text": "a"}) for n in range(MAX_CALLS + 3)))
    messages, model = await complete(calls, "I see.")

    results = [message for message in messages if isinstance(message, ToolMessage)]
    assert [each.content for each in results[:MAX_CALLS]] == ["a"] * MAX_CALLS
    assert all(each.is_error for each in results[MAX_CALLS:])
    assert {each.content for each in results[MAX_CALLS:]} == {
        "error: not run: one answer may make 64 tool calls; call it in your next one"
    }
    assert model.requests[1].messages == tuple(messages[:-1])


@pytest.mark.parametrize("revision", ["2026-07-28", LEGACY])
async def test_a_users_refusal_is_an_error_result_without_a_traceback(
    revision: str, caplog: pytest.LogCaptureFixture
):
    async def decline(_: ElicitParams) -> ElicitResult:
        return ElicitResult(action="decline")

    async def refuse(_: CreateMessageParams) -> CreateMessageResult:
        raise RemoteError(-1, "the user refused")

    server = Server("s")

    @server.tool
    async def ask(context: Context) -> str:
        return (await context.elicit("Who?", {"type": "object", "properties": {}})).action

    @server.tool
    async def sample(context: Context) -> str:
        return str(await context.sample("Hi", 10))

    messages = conversation()
    model = ScriptedModel([tool_calls(("1", "s__ask", {}), ("2", "s__sample", {})), "I see."])
    options = {"revision": revision, "elicitation": decline, "sampling": refuse}
    async with Toolbox({"s": server}, environ={}, **options) as toolbox:
        await Agent(model, toolbox).complete(messages)

    asked, sampled = messages[3:5]
    assert isinstance(asked, ToolMessage)
    assert isinstance(sampled, ToolMessage)
    assert (asked.content, asked.is_error) == ("decline", False)
    assert "the user refused (-1)" in sampled.content
    assert sampled.is_error
    assert "Traceback" not in caplog.text


# Errors that end the answer


@each_row(
    "answer",
    [
        AssistantMessage("x" * (MAX_ANSWER_BYTES + 1)),
        AssistantMessage(tool_calls=(ToolCall("1", "s__echo", {"text": "x" * MAX_ANSWER_BYTES}),)),
        AssistantMessage(provider_data={"content": "x" * MAX_ANSWER_BYTES}),
    ],
    ids=["text", "arguments", "provider_data"],
)
async def test_an_answer_over_the_size_limit_is_refused_and_not_recorded(answer: AssistantMessage):
    messages, record = conversation(), Record()
    async with open_tools() as toolbox:
        agent = Agent(ScriptedModel([answer]), toolbox, record=record)
        with pytest.raises(ModelInterrupted, match=r"too long \(limit 4 MiB\)"):
            await agent.complete(messages)

    assert messages == record.messages == conversation()


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
        await Agent(Endless([])).complete(conversation())
    assert closed


@each_row(("options", "rounds"), [({}, 10), ({"max_rounds": 2}, 2)])
async def test_endless_tool_calls_raise_step_limit(options: Json, rounds: int):
    model = ScriptedModel([tool_calls((str(n), "s__echo", {"text": "a"})) for n in range(20)])
    messages = conversation()
    async with open_tools() as toolbox:
        with pytest.raises(StepLimit, match=f"after {rounds} rounds"):
            await Agent(model, toolbox, **options).complete(messages)

    assert len(model.requests) == rounds
    assert len(messages) == 2 + 2 * rounds
    assert is_valid(messages)


async def test_a_model_error_keeps_the_completed_rounds():
    model = ScriptedModel([tool_calls(("1", "s__echo", {"text": "a"})), ModelUnavailable("no key")])
    messages = conversation()
    async with open_tools() as toolbox:
        with pytest.raises(ModelUnavailable, match="no key"):
            await Agent(model, toolbox).complete(messages)

    assert len(messages) == 4
    assert is_valid(messages)


async def test_a_stream_without_a_reply_is_interrupted_and_not_kept():
    class Cut(ScriptedModel):
        async def stream(self, *_: Any) -> AsyncGenerator[ModelEvent, None]:
            yield TextDelta("Well, ")

    messages = conversation()
    with pytest.raises(ModelInterrupted, match="the answer of scripted was cut off"):
        await Agent(Cut([])).complete(messages)
    assert messages == conversation()


# Stopped answers


class Record:
    """A slow store that keeps the order of its writes."""

    def __init__(self) -> None:
        self.messages: list[Message] = conversation()

    async def __call__(self, new: Sequence[Message]) -> None:
        for _ in range(9 if isinstance(new[0], AssistantMessage) else 1):
            await asyncio.sleep(0)
        self.messages += new


CALLS = tool_calls(
    ("1", "s__echo", {"text": "a"}), ("2", "s__fail", {}), ("3", "s__echo", {"text": "c"})
)
SCRIPT: list[Scripted] = [AssistantMessage("Let me see.", tuple(CALLS)), CALLS[:1], "Done."]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.slow("fills a database")
@each_row("again", [False, True], ids=["once", "twice"])
async def test_cancelling_at_any_point_leaves_a_valid_and_stored_conversation(again: bool):
    finished = False
    for turns in range(500):
        messages, record = conversation(), Record()
        async with open_tools() as toolbox:
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
                await settle()  # a second cancellation does not wait for the record

        assert is_valid(messages), turns
        assert record.messages == messages, turns
        if finished:
            break
    assert finished
    assert len(messages) == 2 + 4 + 2 + 1


async def test_closing_after_any_event_leaves_a_valid_and_stored_conversation():
    for count in range(500):
        messages, record = conversation(), Record()
        async with open_tools() as toolbox:
            agent = Agent(ScriptedModel(SCRIPT), toolbox, record=record)
            seen = 0
            async with aclosing(agent.stream(messages)) as events:
                async for event in events:
                    seen += 1
                    if seen > count or isinstance(event, Done):
                        break
        assert is_valid(messages), count
        assert record.messages == messages, count
        if isinstance(event, Done):
            return
    raise AssertionError("never done")


async def test_a_cancelled_call_gets_an_interrupted_result():
    called = asyncio.Event()

    async def never(_: Json) -> Json:
        called.set()
        return await asyncio.get_running_loop().create_future()

    server = ScriptedServer(answers={"tools/list": {"tools": [tool("x")]}, "tools/call": never})
    messages = conversation()
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        agent = Agent(ScriptedModel([tool_calls(("1", "s__x", {}))]), toolbox)
        running = asyncio.create_task(agent.complete(messages))
        await called.wait()
        running.cancel()
        await asyncio.wait({running})
        await server.heard("notifications/cancelled")  # the call was cancelled on the server, too

    assert messages[-1] == interrupted(ToolCall("1", "s__x"))


# Recording


async def test_a_call_is_recorded_before_it_runs():
    happened: list[str] = []

    async def record(new: Sequence[Message]) -> None:
        await asyncio.sleep(0)
        happened.extend(type(message).__name__ for message in new)

    async def call(_: Json) -> Json:
        happened.append("tool call")
        return text("done")

    server = ScriptedServer(answers={"tools/list": {"tools": [tool("x")]}, "tools/call": call})
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        model = ScriptedModel([tool_calls(("1", "s__x", {}), ("2", "s__x", {})), "Done."])
        await Agent(model, toolbox, record=record).complete(conversation())

    assert happened == [
        "AssistantMessage",
        *["tool call"] * 2,
        *["ToolMessage"] * 2,
        "AssistantMessage",
    ]


async def test_a_call_that_cannot_be_recorded_does_not_run():
    async def refuse(_: Sequence[Message]) -> None:
        raise StoreError("the disk is full")

    called: list[Json] = []
    server = ScriptedServer(
        answers={"tools/list": {"tools": [tool("x")]}, "tools/call": lambda p: called.append(p)}
    )
    messages = conversation()
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        model = ScriptedModel([tool_calls(("1", "s__x", {})), "Done."])
        with pytest.raises(StoreError, match="the disk is full"):
            await Agent(model, toolbox, record=refuse).complete(messages)

    assert called == []
    assert is_valid(messages)


# The model


async def test_a_model_given_by_name_is_closed_with_the_agent(monkeypatch: pytest.MonkeyPatch):
    closed: list[str] = []

    class Closing(ScriptedModel):
        async def close(self) -> None:
            closed.append(self.name)

    async def choose(name: str | None) -> ScriptedModel:
        return Closing(["Good day."], name=name or "chosen")

    monkeypatch.setattr("interlock.models.choosing.choose", choose)
    for name in ("scripted:x", None):
        async with Agent(name) as agent:
            await agent.complete(conversation())
    own = Closing(["Good day."], name="own")
    async with Agent(own) as agent:
        await agent.complete(conversation())

    assert closed == ["scripted:x", "chosen"]


async def test_an_agent_used_after_close_closes_its_model_again(monkeypatch):
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

    monkeypatch.setattr("interlock.models.choosing.choose", choose)
    agent = Agent("scripted:x")
    for _ in range(2):
        await agent.complete(conversation())
        assert connected
        await agent.close()
        assert not connected


async def test_new_tools_are_offered_in_the_next_round():
    offered = [["a"], ["a", "b"]]
    server = ScriptedServer(
        answers={
            "tools/list": lambda _: {"tools": [tool(name) for name in offered[0]]},
            "tools/call": lambda _: server.notify("notifications/tools/list_changed") or text(""),
        },
        capabilities={"tools": {"listChanged": True}},
    )
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        model = ScriptedModel([tool_calls(("1", "s__a", {})), "Done."])
        offered.pop(0)
        await Agent(model, toolbox).complete(conversation())

    first, second = ([each.name for each in request.tools] for request in model.requests)
    assert (first, second) == (["s__a"], ["s__a", "s__b"])


async def test_malformed_arguments_are_shortened_in_the_error_result():
    call = ToolCall("1", "s__echo", malformed="[" * 10_000)
    messages = conversation()
    model = ScriptedModel([AssistantMessage(tool_calls=(call,)), "Done."])
    await Agent(model).complete(messages)

    assert "[[[" in messages[-2].content
    assert len(messages[-2].content) < 1_000


async def test_a_cancelled_answer_waits_for_its_calls_to_end(monkeypatch):
    call_started, ended = asyncio.Event(), asyncio.Event()

    async def slow(*_: object, **__: object) -> CallToolResult:
        call_started.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            ended.set()

    monkeypatch.setattr(ServerCalls, "send", slow)
    async with open_tools() as toolbox:
        model = ScriptedModel([tool_calls(("1", "s__echo", {"text": "a"}))])
        answering = asyncio.create_task(Agent(model, toolbox).complete(conversation()))
        await call_started.wait()
        answering.cancel()
        await asyncio.wait([answering])

        assert ended.is_set()


async def test_an_expired_list_of_tools_is_refreshed_for_the_next_answer(
    monkeypatch,
):
    now = 1_000.0
    monkeypatch.setattr("interlock.toolbox.server_lists.monotonic", lambda: now)
    offered = ["a"]
    server = ScriptedServer(answers={"tools/list": lambda _: {"tools": [*map(tool, offered)]}})
    async with Toolbox({"s": server}, environ={}, revision=LEGACY) as toolbox:
        model = ScriptedModel(["One.", "Two."])
        await Agent(model, toolbox).complete(conversation())
        offered.append("b")
        now += 1_000.0
        await Agent(model, toolbox).complete(conversation())

    first, second = ([each.name for each in request.tools] for request in model.requests)
    assert (first, second) == (["s__a"], ["s__a", "s__b"])


# Results as text


@each_row(
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
)
def test_text_of_describes_each_kind_of_content(block: Content, written: str):
    assert text_of(CallToolResult(content=[block])) == written


def test_text_of_puts_each_block_on_its_own_line():
    blocks: list[Content] = [TextContent(text="a"), ResourceLink(uri="x:y"), TextContent(text="b")]

    assert text_of(CallToolResult(content=blocks)) == "a\n[resource x:y]\nb"
    assert text_of(CallToolResult()) == "the tool ran without output"
    assert text_of(CallToolResult(is_error=True)) == "the tool failed without a message"


def test_text_of_uses_the_structure_only_without_content():
    structure = {"a": [1, None]}

    assert text_of(CallToolResult(structured_content=structure)) == '{"a":[1,null]}'
    for given, expected in (("a", "a"), ("\n", '{"a":[1,null]}')):
        both = CallToolResult(content=[TextContent(text=given)], structured_content=structure)
        assert text_of(both) == expected


async def test_model_gets_an_excerpt_of_a_large_result_and_a_tool_to_read_on():
    long = "".join(f"line {number}\n" for number in range(9_000))

    def read_on(messages: Sequence[Message], _: Sequence[ToolDefinition]) -> AssistantMessage:
        arguments = messages[-1].content.partition("interlock__read_result ")[2]
        call = ToolCall("2", "interlock__read_result", msgspec.json.decode(arguments))
        return AssistantMessage(tool_calls=(call,))

    messages, model = await complete(
        tool_calls(("1", "s__echo", {"text": long})), read_on, "Thank you."
    )

    excerpt, rest = (each.content for each in messages if isinstance(each, ToolMessage))
    assert len(excerpt) < 65_536
    assert long.startswith(excerpt.rpartition("\n\n")[0])
    assert rest.startswith(f"line {excerpt.count(chr(10)) - 1}\n")
    assert "line 8999" in rest
    offered = [[each.name for each in request.tools] for request in model.requests]
    assert "interlock__read_result" not in offered[0]
    assert offered[1] == [*offered[0], "interlock__read_result"]


async def test_concurrent_answers_share_the_chosen_model(monkeypatch):
    chosen = []

    async def choose_one(name):
        await asyncio.sleep(0)
        chosen.append(name)
        return ScriptedModel(["one", "two"])

    monkeypatch.setattr("interlock.models.choosing.choose", choose_one)

    async with Agent("some:model") as agent:
        await asyncio.gather(*(agent.complete([UserMessage("Hi")]) for _ in range(2)))

    assert chosen == ["some:model"]
