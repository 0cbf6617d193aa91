"""The chat graph: its nodes, its events, and what it leaves in the state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from interlock.agent import (
    AgentEvent,
    ApprovalAsked,
    Done,
    Stopped,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from interlock.config import StdioServer
from interlock.errors import ConversationBusy, StepLimit, UnknownConversation
from interlock.langchain import tools
from interlock.langchain.history import INTERRUPTED, STOPPED
from interlock.langgraph import (
    ChatContext,
    InvalidInput,
    chat_graph,
    close_open_calls,
    stream,
)
from interlock.langgraph.answers import deltas
from interlock.models import ReasoningDelta, TextDelta, Usage
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.scripted_server import Json, ScriptedServer, text
from tests.support.toolboxes import box, described, kb


async def events_of(
    graph: Any, content: Any = "go", thread: str = "t", **options: Any
) -> list[Any]:
    return [event async for event in stream(graph, content, thread=thread, **options)]


async def state_of(graph: Any, thread: str = "t") -> list[Any]:
    snapshot = await graph.aget_state({"configurable": {"thread_id": thread}})
    found: list[Any] = snapshot.values["messages"]
    return found


def kinds(messages: list[Any]) -> list[str]:
    return [each.type for each in messages]


# Turns


async def test_a_turn_streams_text_calls_and_the_answer() -> None:
    model = ScriptedChatModel(
        calls(("kb__get", {"x": 1}), ("kb__get", {"x": 2}), text="Let me see."), "It is so."
    )
    async with box(kb([described("get")])) as toolbox:
        graph = chat_graph(model, toolbox, checkpointer=InMemorySaver(), system="Be brief.")
        events = await events_of(graph)
        messages = await state_of(graph)

    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(texts) == "Let me see.It is so."
    assert len(texts) == 6
    started = {event.id: event for event in events if isinstance(event, ToolStarted)}
    ended = {event.id: event for event in events if isinstance(event, ToolFinished)}
    assert {id: (each.address, each.arguments) for id, each in started.items()} == {
        "call_1": ("kb:get", {"x": 1}),
        "call_2": ("kb:get", {"x": 2}),
    }
    assert {id: each.result for id, each in ended.items()} == {
        "call_1": '{"x": 1}',
        "call_2": '{"x": 2}',
    }
    assert started["call_1"].call_id == ended["call_1"].call_id
    assert isinstance(events[-1], Done)
    assert events[-1].message.content == "It is so."
    assert kinds(messages) == ["human", "ai", "tool", "tool", "ai"]
    assert [each.tool_call_id for each in messages[2:4]] == ["call_1", "call_2"]
    assert kinds(model.requests[0]) == ["system", "human"]


async def test_a_model_that_does_not_stream_gives_one_delta() -> None:
    class Whole(ScriptedChatModel):
        _stream = None  # type: ignore[assignment]
        _astream = None  # type: ignore[assignment]

    model = Whole("It is so.")
    model.disable_streaming = True
    events = await events_of(chat_graph(model))

    assert [event.text for event in events[:-1]] == ["It is so."]


async def test_tokens_of_a_model_inside_a_tool_are_not_part_of_the_answer() -> None:
    inner = ScriptedChatModel("inner words")

    @tool
    async def think(x: int) -> str:
        """Think."""
        return (await inner.ainvoke("x")).text

    model = ScriptedChatModel(calls(("think", {"x": 1})), "done")
    events = await events_of(chat_graph(model, local_tools=[think]))

    assert [event.text for event in events if isinstance(event, TextDelta)] == ["done"]
    finished = next(event for event in events if isinstance(event, ToolFinished))
    assert finished.result == "inner words"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a", [TextDelta("a")]),
        ([{"type": "text", "text": "a"}], [TextDelta("a")]),
        ([{"type": "reasoning", "reasoning": "b"}], [ReasoningDelta("b")]),
        ([{"type": "thinking", "thinking": "b"}], [ReasoningDelta("b")]),
        ([{"type": "reasoning", "summary": [{"text": "b"}]}], [ReasoningDelta("b")]),
        ([{"type": "tool_use", "name": "x", "id": "1"}, {"type": "text", "text": ""}], []),
    ],
)
def test_blocks_become_text_or_reasoning(content: Any, expected: list[AgentEvent]) -> None:
    assert list(deltas(AIMessageChunk(content))) == expected


async def test_usage_is_the_sum_of_all_rounds() -> None:
    def used(message: AIMessage) -> AIMessage:
        message.usage_metadata = {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
        return message

    model = ScriptedChatModel(used(calls(("kb__get", {}))), used(AIMessage("done")))
    async with box(kb([described("get")])) as toolbox:
        events = await events_of(chat_graph(model, toolbox))

    assert events[-1].usage == Usage(4, 6)


async def test_progress_of_a_tool_is_an_event() -> None:
    server = kb([described("get")])

    def report(params: Json) -> Json:
        token = params["_meta"]["progressToken"]
        server.notify("notifications/progress", progressToken=token, progress=1, total=2)
        return text("done")

    server.answers["tools/call"] = report
    async with box(server) as toolbox:
        events = await events_of(
            chat_graph(ScriptedChatModel(calls(("kb__get", {})), "x"), toolbox)
        )

    assert ToolProgress("call_1", 1, 2, "") in events


# Tools of the moment


async def test_tools_that_change_between_two_rounds_are_bound_and_called() -> None:
    definitions = [described("get")]
    async with box(kb(definitions)) as toolbox:

        def change(_: Any) -> AIMessage:
            definitions[:] = [described("put")]
            toolbox._upstreams["kb"]._listed_until = 0.0
            return calls(("kb__get", {}))

        model = ScriptedChatModel(change, calls(("kb__put", {}), start=2), "done")
        events = await events_of(chat_graph(model, toolbox))

    assert model.offered == [["kb__get"], ["kb__put"], ["kb__put"]]
    assert len(model.bound) == 2  # bound again only because the tools changed
    assert [each.is_error for each in events if isinstance(each, ToolFinished)] == [False, False]


async def test_a_call_of_an_unknown_tool_has_events_and_an_answer() -> None:
    model = ScriptedChatModel(calls(("kb__gone", {})), "done")
    async with box(kb([described("get")])) as toolbox:
        events = await events_of(chat_graph(model, toolbox))

    assert [type(event) for event in events[:2]] == [ToolStarted, ToolFinished]
    assert events[1].result == "error: no tool 'kb__gone'"


async def test_each_user_gets_the_toolbox_and_the_model_of_the_context() -> None:
    async with box(kb([described("ann")])) as one, box(kb([described("bob")])) as two:
        models = {"ann": ScriptedChatModel("hi ann"), "bob": ScriptedChatModel("hi bob")}
        boxes = {"ann": one, "bob": two}
        graph = chat_graph(lambda it: models[it.user], lambda it: boxes[it.user])

        await events_of(graph, user="ann")
        await events_of(graph, user="bob", thread="u")

    assert models["ann"].offered == [["kb__ann"]]
    assert models["bob"].offered == [["kb__bob"]]


async def test_a_local_tool_wins_and_its_failure_is_an_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def kb__get(x: int) -> str:
        """Mine."""
        raise RuntimeError("out of luck")

    model = ScriptedChatModel(calls(("kb__get", {"x": 1})), "done")
    async with box(kb([described("get")])) as toolbox:
        events = await events_of(chat_graph(model, toolbox, local_tools=[kb__get]))

    assert events[1].result == "error: out of luck"
    assert "hides the one of the toolbox" in caplog.text


async def test_bind_tools_gets_parallel_tool_calls_only_if_it_is_set() -> None:
    class Watching(ScriptedChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            seen.append(options)
            return super().bind_tools(tools)

    seen: list[Any] = []
    async with box(kb([described("get")])) as toolbox:
        await events_of(chat_graph(Watching("a"), toolbox))
        await events_of(chat_graph(Watching("a"), toolbox, parallel_tool_calls=False))

    assert seen == [{}, {"parallel_tool_calls": False}]


# What models send


async def test_arguments_that_are_not_json_are_answered_with_an_error() -> None:
    broken = AIMessage(
        "",
        invalid_tool_calls=[
            {"name": "kb__get", "args": "{", "id": "1", "error": None, "type": "invalid_tool_call"}
        ],
    )
    server = kb([described("get")])
    model = ScriptedChatModel(broken, "done")
    async with box(server) as toolbox:
        graph = chat_graph(model, toolbox, checkpointer=InMemorySaver())
        events = await events_of(graph)
        messages = await state_of(graph)

    assert messages[2].content == "error: the arguments are not a JSON object: {"
    assert messages[1].tool_calls[0]["args"] == {}
    assert messages[1].invalid_tool_calls == []
    assert isinstance(events[-1], Done)
    assert server.sent("tools/call") == []


async def test_ids_that_are_empty_or_used_twice_are_replaced() -> None:
    first, second = calls(("kb__get", {"x": 1}), ("kb__get", {"x": 2})), calls(("kb__get", {}))
    first.tool_calls[1]["id"] = "call_1"
    second.tool_calls[0]["id"] = "call_1"
    async with box(kb([described("get")])) as toolbox:
        graph = chat_graph(
            ScriptedChatModel(first, second, "done"), toolbox, checkpointer=InMemorySaver()
        )
        await events_of(graph)
        messages = await state_of(graph)

    ids = [call["id"] for each in messages if each.type == "ai" for call in each.tool_calls]
    assert len(set(ids)) == 3
    assert [each.tool_call_id for each in messages if each.type == "tool"] == ids


# Limits


@pytest.mark.parametrize("content", ["", " \n", "x" * 11])
async def test_a_message_that_is_empty_or_too_long_is_refused(content: str) -> None:
    model = ScriptedChatModel("done")
    with pytest.raises(InvalidInput, match=r"empty|limit 10"):
        await events_of(chat_graph(model, max_input=10), content)

    assert model.requests == []


async def test_too_many_rounds_raise_after_all_calls_are_answered() -> None:
    model = ScriptedChatModel(*[calls(("kb__get", {}), start=n) for n in (1, 2)], "done")
    async with box(kb([described("get")])) as toolbox:
        graph = chat_graph(model, toolbox, max_rounds=2, checkpointer=InMemorySaver())
        with pytest.raises(StepLimit):
            await events_of(graph)
        assert kinds(await state_of(graph)) == ["human", "ai", "tool", "ai", "tool"]
        assert isinstance((await events_of(graph, "try again"))[-1], Done)


async def test_a_second_turn_of_a_conversation_is_refused_while_one_runs() -> None:
    async def wait(_: Json) -> None:
        await asyncio.get_running_loop().create_future()

    server = kb([described("get")], wait)
    async with box(server) as toolbox:
        graph = chat_graph(ScriptedChatModel(calls(("kb__get", {}))), toolbox)
        running = asyncio.create_task(events_of(graph))
        await server.heard("tools/call")
        with pytest.raises(ConversationBusy):
            await events_of(graph)
        running.cancel()
        await asyncio.wait({running})
        await server.heard("notifications/cancelled")


async def test_a_conversation_of_another_user_does_not_exist() -> None:
    graph = chat_graph(ScriptedChatModel("a", "b"), checkpointer=InMemorySaver())
    await events_of(graph, user="ann")

    with pytest.raises(UnknownConversation):
        await events_of(graph, user="bob")


async def test_nothing_of_the_context_is_stored(tmp_path: Path) -> None:
    file = tmp_path / "chat.db"
    context = ChatContext(user="ann", data={"token": "canary-7"})
    async with (
        box(kb([described("get")])) as toolbox,
        AsyncSqliteSaver.from_conn_string(str(file)) as saver,
    ):
        model = ScriptedChatModel(calls(("kb__get", {"x": 1})), "done")
        graph = chat_graph(model, toolbox, checkpointer=saver)
        await events_of(graph, context=context)
        await saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    stored = file.read_bytes()
    assert b"kb__get" in stored
    assert b"canary-7" not in stored
    assert "canary-7" not in repr(context)


# Stopping


async def test_a_stopped_turn_keeps_finished_results_and_says_so_for_the_others() -> None:
    async def answer(params: Json) -> Json | None:
        if params["arguments"]["x"] == 1:
            return text("one")
        await asyncio.get_running_loop().create_future()
        return None

    server = kb([described("get")], answer)
    model = ScriptedChatModel(calls(("kb__get", {"x": 1}), ("kb__get", {"x": 2})), "done")
    async with box(server) as toolbox:
        graph = chat_graph(model, toolbox, checkpointer=InMemorySaver())
        events = stream(graph, "go", thread="t")
        async for event in events:
            if isinstance(event, ToolFinished):
                break
        await events.aclose()
        config = {"configurable": {"thread_id": "t"}}
        assert await close_open_calls(graph, config, STOPPED)
        assert not await close_open_calls(graph, config, STOPPED)
        messages = await state_of(graph)
        await events_of(graph, "and now?")

    assert [each.content for each in messages[2:]] == ["one", STOPPED]
    assert kinds(model.requests[1]) == ["human", "ai", "tool", "tool", "human"]


# Continuing after a crash, without the crash


async def crashed(graph: Any, config: Any) -> None:
    """Leave a turn after the model's answer, as a process does that was killed there."""
    async for _ in graph.astream(
        {"messages": [HumanMessage("go")]}, config, durability="sync", interrupt_before=["tool"]
    ):
        pass


CONFIG = {"configurable": {"thread_id": "t"}}


async def test_a_call_that_may_have_run_is_not_run_again() -> None:
    server = kb([described("get")])
    model = ScriptedChatModel(calls(("kb__get", {})), "done")
    async with box(server) as toolbox:
        graph = chat_graph(model, toolbox, checkpointer=InMemorySaver())
        await crashed(graph, CONFIG)
        events = await events_of(graph, None)

    assert server.sent("tools/call") == []
    assert next(each for each in events if isinstance(each, ToolFinished)).result == INTERRUPTED
    assert isinstance(events[-1], Done)


async def test_a_call_that_the_operator_allows_to_repeat_is_run_again(tmp_path: Path) -> None:
    import sys

    from interlock.config.servers import ToolFilter
    from interlock.toolbox import Toolbox

    echo = Path(__file__).parents[1] / "servers" / "echo.py"
    server = StdioServer(
        command=sys.executable,
        args=("-I", "-S", str(echo)),
        tools=ToolFilter(idempotent=("say",)),
    )
    model = ScriptedChatModel(calls(("echo__say", {"text": "hi"})), "done")
    async with Toolbox({"echo": server}) as toolbox:
        graph = chat_graph(model, toolbox, checkpointer=InMemorySaver())
        await crashed(graph, CONFIG)
        events = await events_of(graph, None)

    assert next(each for each in events if isinstance(each, ToolFinished)).result == "hi"


async def test_a_new_message_after_a_crash_runs_nothing_again() -> None:
    server = kb([described("get")])
    model = ScriptedChatModel(calls(("kb__get", {})), "done")
    async with box(server) as toolbox:
        graph = chat_graph(model, toolbox, checkpointer=InMemorySaver())
        await crashed(graph, CONFIG)
        await events_of(graph, "and now?")
        messages = await state_of(graph)

    assert server.sent("tools/call") == []
    assert kinds(messages) == ["human", "ai", "tool", "human", "ai"]
    assert messages[2].content == INTERRUPTED


async def test_validate_closes_calls_where_they_are_for_those_who_use_the_graph_alone() -> None:
    model = ScriptedChatModel("done")
    old = [HumanMessage("a"), calls(("kb__get", {})), HumanMessage("b")]
    graph = chat_graph(model, checkpointer=InMemorySaver())
    result = await graph.ainvoke({"messages": old}, CONFIG)

    assert kinds(result["messages"]) == ["human", "ai", "tool", "human", "ai"]
    assert result["messages"][2].content == INTERRUPTED


# Approvals


def risky(_: ChatContext, entry: Any, arguments: Json) -> str | None:
    return "it deletes" if arguments.get("x") == "all" else None


@pytest.fixture
async def asking() -> AsyncIterator[tuple[Any, ScriptedServer, ScriptedChatModel]]:
    server = kb([described("get")])
    model = ScriptedChatModel(calls(("kb__get", {"x": "all"}), ("kb__get", {"x": 1})), "done", "so")
    async with box(server) as toolbox:
        saver = InMemorySaver()
        yield chat_graph(model, toolbox, checkpointer=saver, approve=risky), server, model


async def asked(graph: Any) -> ApprovalAsked:
    events = await events_of(graph)
    assert events[-1] == Stopped("waiting")
    found = events[-2]
    assert isinstance(found, ApprovalAsked)
    return found


async def test_a_call_that_needs_approval_runs_once_it_is_allowed(asking: Any) -> None:
    graph, server, _ = asking
    approval = await asked(graph)

    assert (approval.address, approval.arguments) == ("kb:get", {"x": "all"})
    assert approval.reason == "it deletes"
    assert server.sent("tools/call") == []

    decisions = {approval.id: {"decision": "allow", "hash": approval.hash}}
    events = await events_of(graph, Command(resume=decisions))

    assert len(server.sent("tools/call")) == 2
    assert isinstance(events[-1], Done)


@pytest.mark.parametrize(
    ("decision", "why"),
    [
        ("deny", "a person denied it"),
        ({"decision": "allow", "hash": "another"}, "not allowed with these arguments"),
        (None, "not allowed with these arguments"),
    ],
    ids=str,
)
async def test_a_call_that_was_not_allowed_is_answered_and_the_others_run(
    asking: Any, decision: Any, why: str
) -> None:
    graph, server, _ = asking
    approval = await asked(graph)

    events = await events_of(graph, Command(resume={approval.id: decision}))

    assert [each["arguments"] for each in server.sent("tools/call")] == [{"x": 1}]
    refused = next(each for each in events if getattr(each, "ending", "") == "refused")
    assert why in refused.result


async def test_an_approval_is_bound_to_the_arguments(asking: Any) -> None:
    graph, server, _ = asking
    approval = await asked(graph)
    changed = (await state_of(graph))[1].model_copy(deep=True)
    changed.tool_calls[0]["args"] = {"x": "all", "force": True}
    await graph.aupdate_state(CONFIG, {"messages": [changed]}, as_node="model")

    events = await events_of(graph, Command(resume={approval.id: "allow"}))

    sent = [each["arguments"] for each in server.sent("tools/call")]
    assert {"x": "all", "force": True} not in sent
    assert isinstance(events[-1], Stopped | Done)


async def test_a_new_message_while_an_approval_waits_closes_the_calls(asking: Any) -> None:
    graph, server, _ = asking
    await asked(graph)

    events = await events_of(graph, "never mind")

    assert isinstance(events[-1], Done)
    assert server.sent("tools/call") == []
    assert kinds(await state_of(graph)) == ["human", "ai", "tool", "tool", "human", "ai"]


# Conversations of other graphs


async def test_a_conversation_of_create_agent_is_continued() -> None:
    saver = InMemorySaver()
    async with box(kb([described("get")])) as toolbox:
        old = create_agent(
            ScriptedChatModel(calls(("kb__get", {"x": 1})), "done"),
            tools(toolbox),
            checkpointer=saver,
        )
        await old.ainvoke({"messages": [HumanMessage("go")]}, CONFIG)
        model = ScriptedChatModel("done again")
        events = await events_of(chat_graph(model, toolbox, checkpointer=saver), "and?")

    assert isinstance(events[-1], Done)
    assert kinds(model.requests[0]) == ["human", "ai", "tool", "ai", "human"]


async def test_old_names_are_fitted_for_the_request_and_stay_in_the_state() -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    def write(_: MessagesState) -> Any:
        answers = [ToolMessage(text, tool_call_id=f"call_{text}") for text in "21"]
        orphan = ToolMessage("?", tool_call_id="call_9")
        made = calls(("kb:get", {"x": 1}), ("kb:gone", {"x": 2}))
        return {"messages": [made, *answers, orphan, AIMessage("so")]}

    saver = InMemorySaver()
    outer = StateGraph(MessagesState)
    outer.add_node("write", write)
    outer.add_edge(START, "write")
    await outer.compile(checkpointer=saver).ainvoke({"messages": [HumanMessage("a")]}, CONFIG)
    model = ScriptedChatModel("done")
    async with box(kb([described("get")])) as toolbox:
        graph = chat_graph(model, toolbox, checkpointer=saver)
        await events_of(graph, "and?")
        stored = await state_of(graph)

    request = model.requests[0]
    assert kinds(request) == ["human", "ai", "tool", "tool", "ai", "human"]
    assert [call["name"] for call in request[1].tool_calls] == ["kb__get", "kb__gone"]  # type: ignore[attr-defined]
    assert [(each.name, each.content) for each in request[2:4]] == [
        ("kb__get", "1"),
        ("kb__gone", "2"),
    ]
    assert [call["name"] for call in stored[1].tool_calls] == ["kb:get", "kb:gone"]


# A graph as part of another


async def test_a_chat_graph_can_be_drawn_and_be_a_subgraph() -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    graph = chat_graph(ScriptedChatModel("done"), approve=risky)
    assert {"validate", "model", "approve", "tool"} <= set(graph.get_graph().nodes)

    outer = StateGraph(MessagesState)
    outer.add_node("chat", graph)
    outer.add_edge(START, "chat")
    result = await outer.compile().ainvoke({"messages": [HumanMessage("go")]})
    assert result["messages"][-1].content == "done"
