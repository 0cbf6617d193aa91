"""interlock connects any model to any tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.agent import Agent
    from interlock.client import Client
    from interlock.config import HttpServer, StdioServer, ToolSearch
    from interlock.context import Context
    from interlock.errors import InterlockError, ToolError
    from interlock.media import Audio, File, Image
    from interlock.server import Depends, Server
    from interlock.toolbox import Toolbox

__version__ = "0.2.0"

__all__ = [
    "Agent",
    "Audio",
    "Client",
    "Context",
    "Depends",
    "File",
    "HttpServer",
    "Image",
    "InterlockError",
    "Server",
    "StdioServer",
    "ToolError",
    "ToolSearch",
    "Toolbox",
]

_HOMES = {
    "Agent": "agent",
    "Audio": "media",
    "Client": "client",
    "Context": "context",
    "Depends": "server",
    "File": "media",
    "HttpServer": "config",
    "Image": "media",
    "InterlockError": "errors",
    "Server": "server",
    "StdioServer": "config",
    "ToolError": "errors",
    "ToolSearch": "config",
    "Toolbox": "toolbox",
}


# Names are loaded on first use, so that a client does not import the agent, for example.
__getattr__ = loader(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
