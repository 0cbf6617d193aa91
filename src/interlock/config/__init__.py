"""Configuration: reading, editing and trusting files with `mcpServers`."""

from __future__ import annotations

from interlock.config.editing import add_server, remove_server
from interlock.config.gateway import GatewaySettings
from interlock.config.reading import VARIABLE, default_path, find, load, loads, metadata_problem
from interlock.config.resolving import resolve
from interlock.config.servers import (
    CONFIGURED,
    Auth,
    Config,
    HttpServer,
    OAuthClient,
    OpenApiConfig,
    Pool,
    PythonServer,
    ServerConfig,
    StdioServer,
    ToolFilter,
)
from interlock.config.tool_search import ToolSearch

__all__ = [
    "CONFIGURED",
    "VARIABLE",
    "Auth",
    "Config",
    "GatewaySettings",
    "HttpServer",
    "OAuthClient",
    "OpenApiConfig",
    "Pool",
    "PythonServer",
    "ServerConfig",
    "StdioServer",
    "ToolFilter",
    "ToolSearch",
    "add_server",
    "default_path",
    "find",
    "load",
    "loads",
    "metadata_problem",
    "remove_server",
    "resolve",
]
