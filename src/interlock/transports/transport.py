"""The interfaces of transports.

A transport carries frames. A frame is the bytes of one JSON-RPC message, without newline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from interlock.errors import AuthError, InterlockError
from interlock.types import RequestId

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""The default size limit of one message, in bytes."""


class Receiver(Protocol):
    """Receives the frames of a transport. Called in the event loop; must not block."""

    def frames_received(self, frames: list[bytes], request: RequestId | None = None) -> None:
        """Handle frames in the order in which the peer sent them.

        Args:
            frames: The frames, with one message each.
            request: Our request on whose stream they came, the only one that they may answer;
                None where all requests share a stream.
        """
        ...

    def awaits(self, id: RequestId) -> bool:
        """Return whether request `id` has not been answered yet."""
        ...

    def request_failed(self, id: RequestId, error: InterlockError) -> None:
        """Fail request `id`, which gets no response, unless it has ended."""
        ...

    def connection_lost(self, error: InterlockError) -> None:
        """Handle the end of the connection. Called at most once, and not after `close`."""
        ...


class Transport(Protocol):
    """A channel to one peer. All waiting of a connection happens here."""

    async def open(self, receiver: Receiver) -> None:
        """Connect to the peer and deliver frames to `receiver`. Called once.

        Raises:
            InterlockError: The peer cannot be reached. No resource stays open.
        """
        ...

    def send(self, frames: list[bytes]) -> None:
        """Send frames in this order. Never blocks; drops them after the end."""
        ...

    def forget(self, id: RequestId) -> None:
        """Stop waiting for the response to request `id`."""
        ...

    def diagnostics(self) -> str:
        """Return the peer's last output outside of the protocol, such as on stderr; "" for none."""
        ...

    def abort(self, error: InterlockError) -> None:
        """End now: notify the receiver, and disconnect in the background.

        `close` waits for the end of the disconnection.
        """
        ...

    async def close(self) -> None:
        """Disconnect and release everything. Any task may call it, several times."""
        ...


class Authorization(Protocol):
    """The source of a server's access token."""

    @property
    def token(self) -> str:
        """The token to send now; "" if there is none or it has expired."""
        ...

    async def valid_token(self) -> str:
        """Return a token, renewed if it has expired; "" if that needs a user."""
        ...

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize one HTTP request; {} without a token."""
        ...

    def needs_resend(self, status: int, headers: Mapping[str, str]) -> bool:
        """Process the answer to a request; return whether to resend it with new `headers`.

        A server may refuse a request (401) to demand a nonce in the next one (RFC 9449 section 9).
        """
        ...

    async def refresh_after(self, error: AuthError) -> None:
        """Get a better token than `error.token_used`, which the server has refused.

        Raises:
            AuthError: No better token is available; `LoginRequired` if a user can get one.
        """
        ...


class InProcessServer(Protocol):
    """A server in this program, such as `interlock.Server`."""

    def connect(self) -> Transport:
        """Return the client's end of a new connection to the server."""
        ...
