"""Serve the operations in OpenAPI documents as MCP tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.openapi.server import OpenApiServer

__all__ = ["OpenApiServer"]

# The server loads aiohttp, which compiling tools does not need, so it is imported on first use.
__getattr__ = loader(__name__, {"OpenApiServer": "openapi.server"})
