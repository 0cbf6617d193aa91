"""The layers that a call passes on its way to a server; `stack` has their order."""

from __future__ import annotations

from interlock.layers.enforcement import CallDenied, enforce
from interlock.layers.stack import Layers

__all__ = ["CallDenied", "Layers", "enforce"]
