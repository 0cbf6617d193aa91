"""A server of Python functions, over stdio and HTTP."""

from __future__ import annotations

from interlock.server.server import Middleware, Server

__all__ = ["Middleware", "Server"]
