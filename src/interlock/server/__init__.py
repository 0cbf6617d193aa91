"""A server of Python functions, over stdio and HTTP."""

from __future__ import annotations

from interlock.server.methods import Handler
from interlock.server.server import Middleware, Server
from interlock.server.values import audio, image

__all__ = ["Handler", "Middleware", "Server", "audio", "image"]
