"""A chat graph that looks up its tools at run time, and whose state survives a crash.

    START -> validate -> model -> (approve) -> tool, once for each call -> model … -> END

A call that may have run is never repeated automatically, unless its tool may be repeated. The
state's `live` is set together with an answer's calls and never stored. A run that continues from a
checkpoint therefore lacks it, and does not repeat the answer's calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from langchain_core.tools import BaseTool
from langchain_core.tools import tool as as_tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from interlock.config import ToolSearch
from interlock.langchain.history import open_calls
from interlock.langchain.messages import MAX_IMAGE
from interlock.langchain.tool_search import unread
from interlock.langgraph.nodes import MAX_INPUT, MAX_ROUNDS, Nodes, about_call, too_many
from interlock.langgraph.state import Approve, ChatContext, ChatState, ModelSource, ToolSource


def chat_graph(
    model: ModelSource,
    toolbox: ToolSource = None,
    *,
    checkpointer: Any = None,
    system: str | None = None,
    max_rounds: int = MAX_ROUNDS,
    max_input: int = MAX_INPUT,
    approve: Approve | None = None,
    local_tools: Sequence[Any] = (),
    images: bool = False,
    max_image_bytes: int = MAX_IMAGE,
    parallel_tool_calls: bool | None = None,
    tool_search: ToolSearch | str = "auto",
) -> Any:
    """Return a compiled graph that chats with a toolbox's tools.

    Args:
        model: A chat model, a name for `init_chat_model`, or a function that gets the context and
            returns a model.
        toolbox: An open toolbox or other `Tools`, or a function that gets the context and returns
            them.
        checkpointer: Stores the conversations; with None they are not stored.
        system: Instructions that are sent with each request and not stored.
        max_rounds: The rounds of tool calls for one message before `StepLimit` is raised.
        max_input: The maximum characters of a user's message.
        approve: Returns why a person must allow a call; None if no person must. If a person must,
            the graph is interrupted; resume it with `Command(resume={approval_id: "allow"})`.
        local_tools: Tools or functions of this program. They replace toolbox tools of the same
            name.
        images: Whether the model gets images; otherwise it gets a line of text for each image.
        max_image_bytes: The largest image that the model gets. Each later step stores it again.
        parallel_tool_calls: Passed to `bind_tools` if set; not every provider supports it.
        tool_search: See `Agent`.
    """
    bound = {} if parallel_tool_calls is None else {"parallel_tool_calls": parallel_tool_calls}
    nodes = Nodes(
        model,
        toolbox,
        system=system,
        max_rounds=max_rounds,
        max_input=max_input,
        approve=approve,
        local_tools=[each if isinstance(each, BaseTool) else as_tool(each) for each in local_tools],
        images=max_image_bytes if images else 0,
        bind_options=bound,
        search=ToolSearch.of(tool_search),
    )
    return _wired(nodes, with_approval=approve is not None).compile(checkpointer=checkpointer)


def _wired(nodes: Nodes, *, with_approval: bool) -> Any:
    graph = StateGraph(ChatState, context_schema=ChatContext)
    graph.add_node("validate", nodes.validate)
    graph.add_node("model", nodes.ask_model)
    graph.add_node("tool", cast("Any", nodes.run_tool))
    graph.add_edge(START, "validate")
    graph.add_edge("validate", "model")
    graph.add_edge("tool", "model")
    if with_approval:
        graph.add_node("approve", nodes.ask_approval)
        graph.add_conditional_edges("model", _approval, ["approve", END])
        graph.add_conditional_edges("approve", _calls, ["tool", END])
    else:
        graph.add_conditional_edges("model", _calls, ["tool", END])
    return graph


def _approval(state: ChatState) -> str:
    return "approve" if open_calls(state["messages"]) else END


def _calls(state: ChatState) -> list[Send] | str:
    """Send each call in the last answer to its own task."""
    calls = open_calls(state["messages"])
    if not calls:
        return END
    malformed = about_call(state["messages"][-1]).get("malformed", {})
    refused = state.get("live")
    beyond = too_many(state["messages"])
    # A task from a checkpoint lacks `live`, too: LangGraph does not store keys of a task that are
    # named like untracked values.
    return [
        Send(
            "tool",
            {
                "call": call,
                "live": refused is not None,
                "malformed": malformed.get(call["id"]),
                "too_many": call["id"] in beyond,
                "unread": unread(state["messages"], call["name"]),
                "refused": (refused or {}).get(call["id"]),
            },
        )
        for call in calls
    ]
