"""The MCP protocol without IO: JSON-RPC messages, HTTP headers and server-sent events."""

from __future__ import annotations

from interlock.protocol.core import (
    Answer,
    Cancellation,
    Counted,
    Event,
    Failure,
    Notification,
    Overrun,
    Progress,
    ProgressHandler,
    Protocol,
    Request,
    RequestOptions,
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
]
