"""The MCP protocol without IO: JSON-RPC messages, HTTP headers and server-sent events."""

from __future__ import annotations

from interlock.protocol.core import Counted, Protocol, RequestOptions
from interlock.protocol.events import (
    Answer,
    Cancellation,
    Event,
    Failure,
    Notification,
    Overrun,
    Progress,
    ProgressHandler,
    Request,
    Stray,
)

__all__ = [
    "Answer",
    "Cancellation",
    "Counted",
    "Event",
    "Failure",
    "Notification",
    "Overrun",
    "Progress",
    "ProgressHandler",
    "Protocol",
    "Request",
    "RequestOptions",
    "Stray",
]
