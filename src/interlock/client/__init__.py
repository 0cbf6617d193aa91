"""A client of one MCP server."""

from __future__ import annotations

from interlock.client.client import Client, ClientOptions

__all__ = ["Client", "ClientOptions"]
