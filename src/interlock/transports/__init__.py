"""Transports carry frames: a frame is the bytes of one JSON-RPC message, without newline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from interlock.errors import AuthError, InterlockError
from interlock.types import RequestId

MAX_FRAME_BYTES = 16 * 1024 * 1024


class Receiver(Protocol):
    """Who is told what a transport brings. Called from the event loop, must not block."""

    def frames_received(self, frames: list[bytes], request: RequestId | None = None) -> None:
        """Take frames in the order in which the peer sent them.

        Args:
            frames: One message each.
            request: The only request of ours that they may answer, where the transport ties
                an answer to its request, as HTTP does; None for any.
        """
        ...

    def awaits(self, id: RequestId) -> bool:
        """Whether request `id` has not been answered yet."""
        ...

    def request_failed(self, id: RequestId, error: InterlockError) -> None:
        """Learn that nothing answers request `id` any more, if nothing has yet."""
        ...

    def connection_lost(self, error: InterlockError) -> None:
        """Learn that nothing comes any more. Called at most once, and not after `close`."""
        ...


class Transport(Protocol):
    """A way to one peer. All waiting of a connection happens in here."""

    async def open(self, receiver: Receiver) -> None:
        """Reach the peer; from now on `receiver` is told. Opened once.

        Raises:
            InterlockError: The peer cannot be reached. Nothing is left open then.
        """
        ...

    def send(self, frames: list[bytes]) -> None:
        """Send frames in this order. Never blocks; after the end they are dropped."""
        ...

    def forget(self, id: RequestId) -> None:
        """Learn that nobody waits for the answer to request `id` any more."""
        ...

    def diagnostics(self) -> str:
        """What the peer said last beside the protocol, such as on stderr; "" for nothing."""
        ...

    def abort(self, error: InterlockError) -> None:
        """End now: tell the receiver of the loss, and let the peer go in the background.

        `close` waits until it has gone.
        """
        ...

    async def close(self) -> None:
        """Let the peer go and everything with it. Any task may call it, several times."""
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
