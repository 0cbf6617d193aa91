"""A server of Python functions as tools, resources and prompts, over stdio and HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader
from interlock.server.dependencies import Depends
from interlock.server.methods import Handler
from interlock.server.server import Middleware, Server
from interlock.server.tool_layers import ServedCall, ToolHandler, ToolLayer

if TYPE_CHECKING:
    from interlock.server.http.http_options import HttpOptions

__all__ = [
    "Depends",
    "Handler",
    "HttpOptions",
    "Middleware",
    "ServedCall",
    "Server",
    "ToolHandler",
    "ToolLayer",
]

# Loaded on first use, because a server on stdio needs no HTTP module.
__getattr__ = loader(__name__, {"HttpOptions": "server.http.http_options"})
