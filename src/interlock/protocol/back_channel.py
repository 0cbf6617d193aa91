"""The way from a request back to the client that sent it."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, runtime_checkable

from msgspec import Raw


class BackChannel(Protocol):
    """The way from one request back to its client. Used from the event loop only."""

    @property
    def caller(self) -> Hashable:
        """What the requests of one client have in common, so that clients can take turns."""
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
    """A way back to a client that may never return, such as that of a parked call."""

    def end_if_abandoned(self) -> None:
        """End the call if its client has not answered a question for long."""
        ...
