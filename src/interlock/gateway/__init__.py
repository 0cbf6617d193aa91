"""Many servers as one MCP endpoint that is safe to share."""

from __future__ import annotations

from interlock.gateway.gateway import Gateway

__all__ = ["Gateway"]
