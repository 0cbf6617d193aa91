"""The layers that a call passes on its way to a server; `stack` has their order."""

from __future__ import annotations

from interlock.layers.stack import AroundCalls, Layers

__all__ = ["AroundCalls", "Layers"]
