"""The web pages: the chat, the board of a gateway, the inspector, and the apps of servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.web.chat.app import ChatApp
    from interlock.web.chat.engines import AgentEngine
    from interlock.web.chat.graph_engine import GraphEngine

__all__ = ["AgentEngine", "ChatApp", "GraphEngine"]

# Names are loaded on first use: a page imports only what it needs, and a graph needs LangGraph.
__getattr__ = loader(
    __name__,
    {
        "AgentEngine": "web.chat.engines",
        "ChatApp": "web.chat.app",
        "GraphEngine": "web.chat.graph_engine",
    },
)
