"""The search for tools, for models of LangChain."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from interlock.calls import Caller, Entry
from interlock.config import ToolSearch
from interlock.langchain.tool import LangChainTool
from interlock.messages import SEARCH_TOOLS
from interlock.tool_loading import FREE_ROUNDS, ListedTool, ToolUse, is_on, listed, loaded
from interlock.toolbox import Tools


def uses(messages: Sequence[BaseMessage]) -> list[ToolUse]:
    """Return what messages load and call, in their order."""
    found = []
    for message in messages:
        if isinstance(message, ToolMessage):
            loads = message.additional_kwargs.get("interlock", {}).get("loads", ())
            if loads:
                found.append(ToolUse(tuple(loads), True))
        elif isinstance(message, AIMessage) and message.tool_calls:
            found.append(ToolUse(tuple(call["name"] for call in message.tool_calls), False))
    return found


def searched(
    toolbox: Tools,
    entries: Sequence[Entry],
    caller: Caller,
    messages: Sequence[BaseMessage],
    search: ToolSearch,
    *,
    defers: bool = False,
) -> list[ListedTool] | None:
    """Return the tools of a request if the model searches for tools; None if it reads them all.

    Args:
        entries: The tools that the model is offered.
        caller: The caller on whose behalf the model calls tools.
        messages: The conversation.
        search: The settings.
        defers: Whether the model accepts deferred definitions.
    """
    used = uses(messages)
    if not is_on(search, entries, has_loaded=bool(loaded(used))):
        return None
    return listed(toolbox, entries, caller, used, search, defers=defers)


def as_tools(
    toolbox: Tools, found: Sequence[ListedTool], caller: Caller, images: int
) -> list[LangChainTool]:
    """Return tools of a request for LangChain; `images` is as in `LangChainTool`."""
    return [
        LangChainTool(
            toolbox, each.entry, caller=caller, images=images, description=each.description
        ).renamed()
        for each in found
    ]


def unread(messages: Sequence[BaseMessage], name: str) -> bool:
    """Return whether a tool's parameters are unknown to a model that searches for tools."""
    found = loaded(uses(messages))
    return bool(found) and name not in found and name != SEARCH_TOOLS


def free_rounds(messages: Sequence[BaseMessage]) -> int:
    """Return the number of searching rounds that do not count as rounds of tool calls."""
    searching = sum(
        isinstance(each, AIMessage)
        and bool(each.tool_calls)
        and all(call["name"] == SEARCH_TOOLS for call in each.tool_calls)
        for each in messages
    )
    return min(searching, FREE_ROUNDS)
