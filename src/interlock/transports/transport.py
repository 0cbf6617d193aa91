"""The interfaces between transports and the code that uses them.

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
    """Receives frames from a transport. Its methods run in the event loop and must not block."""

    def frames_received(self, frames: list[bytes], request: RequestId | None = None) -> None:
        """Handle frames in the order in which the peer sent them.

        Args:
            frames: The frames, each with one message.
            request: The id of our request on whose stream the frames arrived, which is the only
                request that they may answer; None if all requests share a stream.
        """
        ...

    def awaits(self, id: RequestId) -> bool:
        """Return whether our request `id` has not been answered yet."""
        ...

    def request_failed(self, id: RequestId, error: InterlockError) -> None:
        """Fail our request `id`, which gets no response, unless it has already ended."""
        ...

    async def settle(self, timeout: float) -> None:
        """Wait at most `timeout` seconds until the peer's running requests are answered."""
        ...

    def connection_lost(self, error: InterlockError) -> None:
        """Handle the end of the connection; called at most once, and not after `close`."""
        ...


class Transport(Protocol):
    """A channel that carries frames to and from one peer, and does all of a connection's IO."""

    async def open(self, receiver: Receiver) -> None:
        """Connect to the peer and deliver frames to `receiver`; called only once.

        Raises:
            InterlockError: The peer cannot be reached. No resource stays open.
        """
        ...

    def send(self, frames: list[bytes]) -> None:
        """Send frames in order, without blocking; drop them if the connection has ended."""
        ...

    def forget(self, id: RequestId) -> None:
        """Stop waiting for the response to our request `id`."""
        ...

    def diagnostics(self) -> str:
        """Return the peer's last output outside of the protocol, as on stderr; "" if nothing."""
        ...

    def abort(self, error: InterlockError) -> None:
        """End the connection: notify the receiver at once, and disconnect in the background.

        `close` waits until the connection is closed.
        """
        ...

    async def close(self) -> None:
        """Disconnect and release all resources; any task may call this, more than once."""
        ...


class Authorization(Protocol):
    """The source of the access tokens for a server."""

    @property
    def token(self) -> str:
        """The token to send now; "" if no token is available, or it has expired."""
        ...

    async def valid_token(self) -> str:
        """Return a token, which is renewed if it has expired; "" if renewing requires a user."""
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
    """A server object in this process, such as `interlock.Server`."""

    def connect(self) -> Transport:
        """Return the client's end of a new connection to the server."""
        ...
