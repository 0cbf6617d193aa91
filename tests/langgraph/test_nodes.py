"""Calls of a graph: run once, answered whatever happened, and approved with their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from interlock.agent import Done, ToolFinished, ToolStarted
from interlock.calls import Caller
from interlock.config import StdioServer
from interlock.langchain.history import INTERRUPTED
from interlock.langgraph import ChatContext, chat_graph
from interlock.langgraph.nodes import approval_of, refusal
from tests.langgraph.support import CONFIG, crashed, events_of, kinds, state_of
from tests.layers.support import call_of
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.rows import each_row
from tests.support.toolboxes import box, described, kb

ENTRY = call_of().entry
CALL = {"id": "t1", "name": "crm__refund", "args": {"order": 1}}
LATER, EARLIER = "2999-01-01T00:00:00+00:00", "2001-01-01T00:00:00+00:00"


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


# Approvals


def approval(expires: str = LATER, **call: Any) -> dict[str, Any]:
    return approval_of({**CALL, **call}, ENTRY, "writes", expires)


def test_id_and_hash_change_with_the_arguments_and_not_with_their_order() -> None:
    one, same = (approval(args=args) for args in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    other = approval(args={"a": 1, "b": 3})

    assert (one["id"], one["hash"]) == (same["id"], same["hash"])
    assert one["id"] != other["id"]
    assert one["hash"] != other["hash"]


@each_row(
    ("decision", "code"),
    [
        ("allow", None),
        ({"decision": "allow"}, None),
        ("deny", "approval_denied"),
        ({"decision": "ALLOW"}, "approval_denied"),
        ({"decision": "allow", "hash": "of other arguments"}, "approval_changed"),
        (None, "approval_changed"),
    ],
)
def test_only_the_decision_to_allow_exactly_this_call_allows_it(decision: Any, code: Any) -> None:
    asked = approval()

    assert refusal(asked, {asked["id"]: decision}) == code


def test_an_approval_that_has_expired_allows_nothing() -> None:
    asked = approval(EARLIER)

    assert refusal(asked, {asked["id"]: "allow"}) == "approval_expired"
    assert refusal(asked, "allow") == "approval_changed"
