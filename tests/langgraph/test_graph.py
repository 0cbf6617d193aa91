"""The chat graph: its nodes, its events, and what it leaves in the state."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from interlock.agent import ApprovalAsked, Done, Stopped, ToolFinished, ToolStarted
from interlock.errors import StepLimit
from interlock.langchain import tools
from interlock.langchain.history import INTERRUPTED, STOPPED
from interlock.langgraph import ChatContext, chat_graph, close_open_calls, stream
from interlock.messages import SEARCH_TOOLS
from tests.langgraph.support import CONFIG, events_of, kinds, state_of
from tests.providers.schema_rules import anthropic
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.rows import each_row
from tests.support.scripted_server import Json, ScriptedServer, text
from tests.support.toolboxes import box, described, expire_list, kb

# Turns


# Tools of the moment


async def test_tools_added_changed_or_removed_between_rounds_are_bound_and_answered() -> None:
    definitions = [described("get"), described("stay")]
    async with box(kb(definitions)) as toolbox:

        def change(_: Any) -> AIMessage:
            definitions[:] = [described("put"), described("stay", description="Changed.")]
            expire_list(toolbox)
            return calls(("kb__get", {}))

        later = calls(("kb__put", {}), ("kb__stay", {}), ("kb__get", {}), start=2)
        model = ScriptedChatModel(change, later, "done")
        events = await events_of(chat_graph(model, toolbox))

    new = ["kb__put", "kb__stay"]
    assert model.offered == [["kb__get", "kb__stay"], new, new]
    assert len(model.bound) == 2  # bound again only because the tools changed
    assert model.bound[1][1]["function"]["description"] == "Changed."
    ended = {each.id: each for each in events if isinstance(each, ToolFinished)}
    assert [id for id in sorted(ended) if ended[id].is_error] == ["call_4"]
    assert "kb__get" in ended["call_4"].result


async def test_found_tools_stay_listed_in_a_conversation_that_a_checkpointer_stores() -> None:
    @tool
    async def kb__list_a(x: int) -> str:
        """Mine."""
        return f"mine {x}"

    saver = InMemorySaver()
    shop = kb([described(f"list_{each}", description=f"List {each}.") for each in "abc"])
    async with box(shop) as toolbox:
        found = calls((SEARCH_TOOLS, {"query": "list"}))
        first = ScriptedChatModel(found, "done")
        options: Any = {"local_tools": [kb__list_a], "checkpointer": saver}
        await events_of(chat_graph(first, toolbox, tool_search="on", **options))
        wrong = calls(("kb__list_c", {"y": 1}), start=2)
        second = ScriptedChatModel(wrong, "done")
        await events_of(chat_graph(second, toolbox, **options))

    own = [SEARCH_TOOLS, "interlock__read_result"]
    every = ["kb__list_a", *own, "kb__list_b", "kb__list_c"]
    assert first.offered == [every[:3], every]
    assert second.offered[0] == every


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


@each_row(("most", "kind"), [({}, "image"), ({"max_image_bytes": 2}, "text")])
async def test_images_up_to_the_limit_are_passed_on_if_enabled(most: Any, kind: str) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    model = ScriptedChatModel(calls(("kb__get", {})), "done")
    async with box(kb([described("get")], lambda _: {"content": [image]})) as toolbox:
        await events_of(chat_graph(model, toolbox, images=True, **most))

    content = model.requests[1][-1].content
    assert (content[0]["type"] if isinstance(content, list) else "text") == kind  # type: ignore[index]


async def test_artifact_and_error_of_a_local_tool_are_kept() -> None:
    @tool(response_format="content_and_artifact")
    async def look() -> tuple[str, dict[str, int]]:
        """Look."""
        return "seen", {"rows": 3}

    @tool
    async def fail() -> str:
        """Fail."""
        raise ToolException("no luck")

    fail.handle_tool_error = True
    model = ScriptedChatModel(calls(("look", {}), ("fail", {})), "done")
    graph = chat_graph(model, local_tools=[look, fail], checkpointer=InMemorySaver())
    events = await events_of(graph)
    stored = await state_of(graph)

    endings = {each.id: each.ending for each in events if isinstance(each, ToolFinished)}
    assert endings == {"call_1": "ran", "call_2": "failed"}
    assert (stored[2].artifact, stored[3].content) == ({"rows": 3}, "no luck")


async def test_models_with_tools_are_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.langgraph.nodes.MAX_BOUND", 1)
    models = [ScriptedChatModel("a", "b"), ScriptedChatModel("c")]
    turns = iter([models[0], models[1], models[0]])
    async with box(kb([described("get")])) as toolbox:
        graph = chat_graph(lambda _: next(turns), toolbox)
        for number in range(3):
            await events_of(graph, thread=str(number))

    assert [len(each.bound) for each in models] == [2, 1]


async def test_a_model_may_be_given_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ScriptedChatModel("Hello.")
    named: list[str] = []
    monkeypatch.setattr(
        "langchain.chat_models.init_chat_model", lambda name: named.append(name) or model
    )
    events = await events_of(chat_graph("openai:gpt"))
    assert events[-1].message.content == "Hello."
    assert named == ["openai:gpt"]

    monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
    with pytest.raises(ImportError, match="pip install 'langchain"):
        chat_graph("openai:gpt")


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


# Limits


async def test_too_many_rounds_raise_after_all_calls_are_answered() -> None:
    model = ScriptedChatModel(*[calls(("kb__get", {}), start=n) for n in (1, 2)], "done")
    async with box(kb([described("get")])) as toolbox:
        graph = chat_graph(model, toolbox, max_rounds=2, checkpointer=InMemorySaver())
        with pytest.raises(StepLimit):
            await events_of(graph)
        assert kinds(await state_of(graph)) == ["human", "ai", "tool", "ai", "tool"]
        assert isinstance((await events_of(graph, "try again"))[-1], Done)


async def test_context_of_a_run_is_not_stored(tmp_path: Path) -> None:
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


@each_row("place", ["thread", "checkpoint"])
async def test_stopped_turn_keeps_finished_results_and_marks_the_others_as_stopped(
    place: str,
) -> None:
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
        config = CONFIG if place == "thread" else (await graph.aget_state(CONFIG)).config
        assert await close_open_calls(graph, config, STOPPED)
        assert not await close_open_calls(graph, CONFIG, STOPPED)
        messages = await state_of(graph)
        await events_of(graph, "and now?")

    assert [each.content for each in messages[2:]] == ["one", STOPPED]
    assert kinds(model.requests[1]) == ["human", "ai", "tool", "tool", "human"]


# Continuing after a crash, without the crash


async def test_validate_adds_missing_call_results_at_their_position() -> None:
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


async def test_renamed_arguments_have_the_names_of_the_server_for_approvals_and_events() -> None:
    server = kb([described("get", {"type": "object", "properties": {"$top": {"type": "integer"}}})])
    model = ScriptedChatModel(calls(("kb__get", {"top": 5})), "done")
    async with box(server) as toolbox:
        saver = InMemorySaver()
        graph = chat_graph(model, toolbox, checkpointer=saver, approve=lambda *_: "it reads")
        approval = await asked(graph)
        events = await events_of(graph, Command(resume={approval.id: "allow"}))

    function = model.bound[0][0]["function"]
    assert anthropic(function["name"], function["parameters"]) == ""
    seen = [each.arguments for each in events if isinstance(each, ToolStarted)]
    assert [approval.arguments, *seen] == [{"$top": 5}, {"$top": 5}]
    assert [each["arguments"] for each in server.sent("tools/call")] == [{"$top": 5}]


async def test_a_person_approves_the_arguments_that_are_sent() -> None:
    server = kb([described("get", {"type": "object", "properties": {"x": {"enum": [1]}}})])
    model = ScriptedChatModel(calls(("kb__get", {"x": "1"})), "done")

    def writes(_: ChatContext, entry: Any, arguments: Json) -> str | None:
        return "one" if arguments == {"x": 1} else None

    async with box(server) as toolbox:
        graph = chat_graph(model, toolbox, checkpointer=InMemorySaver(), approve=writes)
        approval = await asked(graph)
        await events_of(graph, Command(resume={approval.id: "allow"}))

    assert approval.arguments == {"x": 1}
    assert [each["arguments"] for each in server.sent("tools/call")] == [{"x": 1}]


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


@pytest.mark.parametrize(("decision", "sent"), [("allow", ["all", 1]), ("deny", [1])])
async def test_an_approval_outlives_the_process_that_asked(
    tmp_path: Path, decision: str, sent: list[Any]
) -> None:
    place = str(tmp_path / "chat.db")
    made = calls(("kb__get", {"x": "all"}), ("kb__get", {"x": 1}))
    server = kb([described("get")])
    async with box(server) as toolbox, AsyncSqliteSaver.from_conn_string(place) as saver:
        model = ScriptedChatModel(made)
        approval = await asked(chat_graph(model, toolbox, checkpointer=saver, approve=risky))
    assert server.sent("tools/call") == []

    server = kb([described("get")])
    async with box(server) as toolbox, AsyncSqliteSaver.from_conn_string(place) as saver:
        graph = chat_graph(ScriptedChatModel("done"), toolbox, checkpointer=saver, approve=risky)
        events = await events_of(graph, Command(resume={approval.id: decision}))

    assert [each["arguments"]["x"] for each in server.sent("tools/call")] == sent
    assert isinstance(events[-1], Done)


async def test_a_question_that_is_asked_again_expires_at_the_same_time(asking: Any) -> None:
    graph, _, _ = asking
    approval = await asked(graph)

    again = await events_of(graph, None)

    assert again[0] == approval


async def test_no_person_is_asked_about_a_call_beyond_the_limit(
    asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.langgraph.nodes.MAX_CALLS", 0)
    graph, server, _ = asking
    events = await events_of(graph)

    assert server.sent("tools/call") == []
    assert isinstance(events[-1], Done)


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


async def test_checkpoint_of_langgraph_1_0_is_continued_and_its_open_call_closed(
    tmp_path: Path,
) -> None:
    """A graph over `MessagesState` wrote it, and was stopped before its tools."""
    place = tmp_path / "old.db"
    with closing(sqlite3.connect(place)) as database:
        database.executescript((Path(__file__).parent / "written_by_1_0.sql").read_text())
    model = ScriptedChatModel("done")
    server = kb([described("search")])
    async with box(server) as toolbox, AsyncSqliteSaver.from_conn_string(str(place)) as saver:
        graph = chat_graph(model, toolbox, checkpointer=saver)
        await events_of(graph, "and?", thread="old")
        stored = await state_of(graph, "old")

    request = model.requests[0]
    assert [(each.type, each.content) for each in request] == [
        *(("human", "Search."), ("ai", ""), ("tool", "got 1"), ("ai", "Found it.")),
        *(("human", "Again."), ("ai", ""), ("tool", INTERRUPTED), ("human", "and?")),
    ]
    assert {each.name for each in request if isinstance(each, ToolMessage)} == {"kb__search"}
    assert stored[1].tool_calls[0]["name"] == "kb:search"  # what was stored stays as it was


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
