"""Connections to servers and clients: pipes, processes, HTTP and memory."""

from __future__ import annotations

from interlock.transports.trace import Trace
from interlock.transports.transport import (
    MAX_FRAME_BYTES,
    Authorization,
    InProcessServer,
    Receiver,
    Transport,
)

__all__ = ["MAX_FRAME_BYTES", "Authorization", "InProcessServer", "Receiver", "Trace", "Transport"]
