"""The layers that a call passes on its way to a server."""

from __future__ import annotations

from interlock.layers.enforcement import CallDenied, enforce

__all__ = ["CallDenied", "enforce"]
