"""The channel by which a request's handler reaches the client that sent the request."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, runtime_checkable

from msgspec import Raw


class BackChannel(Protocol):
    """The channel from one request back to its client; for use in the event loop only."""

    @property
    def caller(self) -> Hashable:
        """A key that all requests of one client share, so that clients can take turns."""
        ...

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification that belongs to the request."""
        ...

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        """Send a request to the client and wait for its result; legacy clients only.

        Raises:
            RemoteError: The client refused.
            RequestTimeout: No answer in time.
            CapabilityError: This connection cannot carry a request to the client.
        """
        ...

    def close_stream(self, retry_ms: int) -> None:
        """Close the client's stream where the client can reconnect for the answer."""
        ...


@runtime_checkable
class MayBeAbandoned(Protocol):
    """A back channel whose client may never return, such as that of a parked call."""

    def end_if_abandoned(self) -> None:
        """End the call if its client has left a question unanswered for too long."""
        ...
