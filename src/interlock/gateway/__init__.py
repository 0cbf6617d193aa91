"""Many servers as one MCP endpoint that is safe to share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.gateway.forwarding.server import Gateway

__all__ = ["Gateway"]

# Loaded on first use, as `interlock chat` needs parts of this package but serves nothing.
__getattr__ = loader(__name__, {"Gateway": "gateway.forwarding.server"})
