"""Streams the events of a chat graph's turn, and repairs a turn that was interrupted."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage

from interlock import observing
from interlock.agent import (
    AgentEvent,
    ApprovalAsked,
    Done,
    Stopped,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from interlock.errors import ConversationBusy, UnknownConversation
from interlock.langchain.history import INTERRUPTED, answer, last_calls
from interlock.langgraph.answers import usage_of
from interlock.langgraph.state import ChatContext
from interlock.messages import AssistantMessage
from interlock.models import ReasoningDelta, TextDelta

_EVENTS = (TextDelta, ReasoningDelta, ToolStarted, ToolProgress, ToolFinished)
_running: set[tuple[int, str]] = set()


def stream(
    graph: Any,
    content: Any,
    *,
    thread: str,
    user: str = "",
    context: ChatContext | None = None,
) -> AsyncGenerator[AgentEvent, None]:
    """Send a message, or continue a turn; yield the turn's events.

    Each step is stored before the next step begins. Calls that a crash left without answers are
    answered first.

    Args:
        graph: A result of `chat_graph`.
        content: The user's message, as text or as LangChain's blocks; `Command(resume=...)` to
            decide about approvals; None to continue a turn that was interrupted.
        thread: The conversation's id. Do not use a client's id, which may be another user's.
        user: The owner of the conversation.
        context: The context of the run; None makes a context with the user.

    Raises:
        UnknownConversation: The conversation has another owner.
        ConversationBusy: Another turn of the conversation is under way.
    """
    events = _stream(graph, content, thread, user, context)
    if observing.observer is not None:
        return observing.observer.answer("interlock", events, lambda: thread)
    return events


async def _stream(
    graph: Any, content: Any, thread: str, user: str, context: ChatContext | None
) -> AsyncGenerator[AgentEvent, None]:
    key = id(graph), thread
    if key in _running:
        raise ConversationBusy(thread)
    _running.add(key)
    try:
        config = {"configurable": {"thread_id": thread}}
        resumed: frozenset[str] = frozenset()
        if graph.checkpointer:
            snapshot = await graph.aget_state(config)
            if snapshot.values.get("user_id", user) != user:
                raise UnknownConversation(f"no conversation {thread!r}")
            resumed = frozenset(task.id for task in snapshot.tasks if task.interrupts)
            if isinstance(content, str | list):
                await close_open_calls(graph, config)
        given = content
        if isinstance(content, str | list):
            messages = [HumanMessage(content)]
            given = {"messages": messages, "conversation_id": thread, "user_id": user}
        context = replace(context or ChatContext(user=user), streams=True, resumed=resumed)
        async with aclosing(_events(graph, given, config, context)) as events:
            async for event in events:
                yield event
    finally:
        _running.discard(key)


async def _events(
    graph: Any, given: Any, config: Any, context: ChatContext
) -> AsyncGenerator[AgentEvent, None]:
    answers: list[AIMessage] = []
    is_waiting = False
    options = {"durability": "sync"} if graph.checkpointer else {}
    parts = graph.astream(
        given, config, context=context, stream_mode=["custom", "updates"], **options
    )
    async with aclosing(parts):
        async for mode, part in parts:
            if mode == "custom":
                if isinstance(part, _EVENTS):  # ignore other objects, which local tools may write
                    yield part
                continue
            for each in part.get("__interrupt__", ()):
                is_waiting = True
                for approval in _approvals(each.value):
                    yield approval
            answers += (part.get("model") or {}).get("messages", ())
    if is_waiting:
        yield Stopped("waiting")
        return
    last = answers[-1] if answers else AIMessage("")
    reason = last.response_metadata.get("finish_reason") or last.response_metadata.get(
        "stop_reason"
    )
    is_cut = reason in ("length", "max_tokens")
    yield Done(AssistantMessage(str(last.text)), usage_of(answers), "length" if is_cut else "end")


def _approvals(value: Any) -> list[ApprovalAsked]:
    if not isinstance(value, dict):
        return []
    return [ApprovalAsked(**each) for each in value.get("approvals", ())]


async def close_open_calls(graph: Any, config: Any, text: str = INTERRUPTED) -> bool:
    """Answer the open calls of an interrupted turn, so that a new message can follow.

    Results that are already available are kept; LangGraph would discard them at the next message.

    Args:
        graph: A result of `chat_graph`.
        config: The configuration with the `thread_id`.
        text: The answer to calls that have no result.

    Returns:
        Whether there were open calls.
    """
    snapshot = await graph.aget_state(config)
    calls, known = last_calls(snapshot.values.get("messages", ()))
    # Results are in the snapshot before they are stored, which happens once all calls have ended.
    is_under_way = any(task.name in ("tool", "approve") for task in snapshot.tasks)
    if not calls or (not is_under_way and all(call["id"] in known for call in calls)):
        return False
    for task in snapshot.tasks:
        if task.name == "tool" and task.result:
            known |= {each.tool_call_id: each for each in task.result["messages"]}
    answers = [known.get(call["id"]) or answer(call, text) for call in calls]
    # Update as the node "tool": the edge after "model" does not expect a tool message.
    await graph.aupdate_state(snapshot.config, {"messages": answers}, as_node="tool")
    return True
