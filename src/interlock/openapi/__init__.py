"""OpenAPI documents as tools."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.openapi.server import OpenApiServer

__all__ = ["OpenApiServer"]


def __getattr__(name: str) -> object:
    # Compiling tools needs no network, so the server is loaded when it is first used.
    if name == "OpenApiServer":
        return import_module("interlock.openapi.server").OpenApiServer
    raise AttributeError(f"module 'interlock.openapi' has no attribute {name!r}")
