"""OpenAPI documents as tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.openapi.server import OpenApiServer

__all__ = ["OpenApiServer"]

# Compiling tools needs no network, so the server is loaded when it is first used.
__getattr__ = loader(__name__, {"OpenApiServer": "openapi.server"})
