"""Calls of a turn that was interrupted: run once, and answered whatever happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from interlock.agent import (
    Done,
    ToolFinished,
    ToolStarted,
)
from interlock.calls import Caller
from interlock.config import StdioServer
from interlock.langchain.history import INTERRUPTED
from interlock.langgraph import ChatContext, chat_graph
from tests.langgraph.support import CONFIG, crashed, events_of, kinds, state_of
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.toolboxes import box, described, kb


async def test_a_call_of_an_unknown_tool_has_events_and_an_answer() -> None:
    model = ScriptedChatModel(calls(("kb__gone", {})), "done")
    async with box(kb([described("get")])) as toolbox:
        events = await events_of(chat_graph(model, toolbox))

    assert [type(event) for event in events[:2]] == [ToolStarted, ToolFinished]
    assert events[1].result == "error: no tool 'kb__gone'"


async def test_a_call_is_made_on_behalf_of_the_caller_of_the_context() -> None:
    def watch(handle: Any) -> Any:
        async def watched(call: Any) -> Any:
            seen.append(call.caller)
            return await handle(call)

        return watched

    seen: list[Caller] = []
    me = Caller(session="mine")
    async with box(kb([described("get")]), around=[watch]) as toolbox:
        graph = chat_graph(ScriptedChatModel(calls(("kb__get", {})), "done"), toolbox)
        await events_of(graph, context=ChatContext(caller=me))

    assert seen == [me]


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
