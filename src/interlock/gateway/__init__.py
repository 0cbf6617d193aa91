"""Many servers as one MCP endpoint that is safe to share."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.gateway.gateway import Gateway

__all__ = ["Gateway"]


def __getattr__(name: str) -> object:
    # `interlock chat` uses parts of this package, but serves nothing.
    if name == "Gateway":
        return import_module("interlock.gateway.gateway").Gateway
    raise AttributeError(f"module 'interlock.gateway' has no attribute {name!r}")
