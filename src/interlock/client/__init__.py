"""A client for MCP servers."""

from __future__ import annotations

from interlock.client.client import Client
from interlock.client.listing import Listing
from interlock.client.options import ClientOptions

__all__ = ["Client", "ClientOptions", "Listing"]
