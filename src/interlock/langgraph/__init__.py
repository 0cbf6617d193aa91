"""A LangGraph graph that chats with a toolbox's tools, and the stream of its events."""

from __future__ import annotations

from interlock.errors import MissingExtra

try:
    from interlock.langgraph.graph import chat_graph
    from interlock.langgraph.state import ChatContext, ChatState, InvalidInput
    from interlock.langgraph.streaming import close_open_calls, stream
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith(("langgraph", "langchain")):
        raise
    raise MissingExtra("interlock.langgraph", "langgraph") from None

__all__ = [
    "ChatContext",
    "ChatState",
    "InvalidInput",
    "chat_graph",
    "close_open_calls",
    "stream",
]
