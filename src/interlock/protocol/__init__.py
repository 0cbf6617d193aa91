"""One MCP connection without its network: JSON-RPC, HTTP headers and events, all without IO."""

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
