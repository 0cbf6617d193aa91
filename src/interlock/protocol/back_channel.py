"""The channel by which a request's handler reaches the client that sent the request."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol, runtime_checkable

from msgspec import Raw


class BackChannel(Protocol):
    """The channel from one request back to its client; not safe to use in other threads."""

    @property
    def caller(self) -> Hashable:
        """A key that all requests from one client share, so that clients can take turns."""
        ...

    def notify(self, method: str, params: bytes) -> None:
        """Send the client a notification about the request."""
        ...

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        """Send a request to a legacy client, and wait for its result.

        Raises:
            RemoteError: The client refused the request.
            RequestTimeout: No answer arrived in time.
            CapabilityError: Requests cannot be sent to the client over this connection.
        """
        ...

    def close_stream(self, retry_ms: int) -> None:
        """Close the client's stream if the client can reconnect for the answer."""
        ...


@runtime_checkable
class MayBeAbandoned(Protocol):
    """A back channel whose client may never return, as for a parked call."""

    def end_if_abandoned(self) -> None:
        """End the call if its client has left a question unanswered for too long."""
        ...


@runtime_checkable
class HasHeaders(Protocol):
    """A back channel whose request came over HTTP."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """The request's headers, with names in lower case."""
        ...
