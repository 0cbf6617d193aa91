"""interlock connects any model to any tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.agent import Agent
    from interlock.client import Client
    from interlock.config import HttpServer, StdioServer
    from interlock.errors import InterlockError, ToolError
    from interlock.toolbox import Toolbox

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Client",
    "HttpServer",
    "InterlockError",
    "StdioServer",
    "ToolError",
    "Toolbox",
]
