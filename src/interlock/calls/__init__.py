"""A call, its outcome, and the stack of layers that it passes through."""

from __future__ import annotations

from interlock.calls.call import LOCAL, Call, Caller, Outcome, Slots, Surface
from interlock.calls.entry import Entry, Item
from interlock.calls.handlers import Around, CallHandler, build

__all__ = [
    "LOCAL",
    "Around",
    "Call",
    "CallHandler",
    "Caller",
    "Entry",
    "Item",
    "Outcome",
    "Slots",
    "Surface",
    "build",
]
