"""Transports carry frames: a frame is the bytes of one JSON-RPC message, without newline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from interlock.errors import AuthError, InterlockError
from interlock.types import RequestId

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The default limit of one message, in bytes."""


class Receiver(Protocol):
    """Receives what arrives on a transport. Called in the event loop; must not block."""

    def frames_received(self, frames: list[bytes], request: RequestId | None = None) -> None:
        """Handle frames in the order in which the peer sent them.

        Args:
            frames: One message each.
            request: Our request on whose stream they came, the only one that they may answer;
                None where one stream is for all.
        """
        ...

    def awaits(self, id: RequestId) -> bool:
        """Return whether request `id` has not been answered yet."""
        ...

    def request_failed(self, id: RequestId, error: InterlockError) -> None:
        """Fail request `id`, which will get no response, unless it has ended."""
        ...

    def connection_lost(self, error: InterlockError) -> None:
        """Handle the end of the connection. Called at most once, and not after `close`."""
        ...


class Transport(Protocol):
    """A channel to one peer. All waiting of a connection happens here."""

    async def open(self, receiver: Receiver) -> None:
        """Connect to the peer and deliver frames to `receiver`. Called once.

        Raises:
            InterlockError: The peer cannot be reached. Nothing is left open then.
        """
        ...

    def send(self, frames: list[bytes]) -> None:
        """Send frames in this order. Never blocks; drops them after the end."""
        ...

    def forget(self, id: RequestId) -> None:
        """Stop waiting for the response to request `id`."""
        ...

    def diagnostics(self) -> str:
        """Return the peer's last output outside of the protocol, as on stderr; "" for none."""
        ...

    def abort(self, error: InterlockError) -> None:
        """End now: notify the receiver, and disconnect in the background.

        `close` waits for the end of that.
        """
        ...

    async def close(self) -> None:
        """Disconnect and release everything. Any task may call it, several times."""
        ...


class Authorization(Protocol):
    """Where the access token of a server comes from."""

    @property
    def token(self) -> str:
        """The token to send now; "" when there is none, or it has expired."""
        ...

    async def valid_token(self) -> str:
        """Return a token, renewing one that has expired; "" when that needs a person."""
        ...

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize one HTTP request; none without a token."""
        ...

    def needs_resend(self, status: int, headers: Mapping[str, str]) -> bool:
        """Note the answer to a request; return whether to send it again with new `headers`.

        A server refuses a request (401) when it wants a nonce of its own in the next one.
        """
        ...

    async def refresh_after(self, error: AuthError) -> None:
        """Get a better token than `error.token_used`, which the server has refused.

        Raises:
            AuthError: There is none to be had; `LoginRequired` when a person could get one.
        """
        ...


class InProcessServer(Protocol):
    """A server in this program, such as `interlock.Server`."""

    def connect(self) -> Transport:
        """Make the client's end of a new connection to it."""
        ...
