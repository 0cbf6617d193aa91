"""Plain HTTP responses, and errors for requests that do not reach a handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from msgspec import Struct

from interlock.auth import Authenticator
from interlock.auth.scopes import scope_challenge
from interlock.errors import InsufficientScope, InterlockError
from interlock.protocol import envelope
from interlock.revisions import INTERNAL_ERROR, INVALID_REQUEST
from interlock.server.wire_errors import RequestRefusal
from interlock.types import RequestId

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

LATER: list[Header] = [(b"retry-after", b"60")]
CLOSE: Header = (b"connection", b"close")
JSON = b"application/json"
JSON_TYPE: Header = (b"content-type", JSON)
# An extension of ASGI: `extensions[AT_ONCE](scope, body)` sends JSON with status 200 in one step
# and returns True, or returns False if the application must send ASGI messages. Sending two
# messages takes a host longer than most of the steps before it.
AT_ONCE = "interlock.at_once"
AtOnce = Callable[[Scope, bytes], bool]


class HttpRefusal(InterlockError):
    """An error that is sent as an HTTP status and a JSON-RPC error.

    Args:
        status: HTTP status.
        message: One line for the client, without secrets from the request.
        code: JSON-RPC error code.
        data: Details for the JSON-RPC error.
        headers: Additional response headers.
        id: The request's id; None if it could not be read.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: int = INVALID_REQUEST,
        *,
        data: Any = None,
        headers: Iterable[Header] = (),
        id: RequestId | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.data = data
        self.headers = list(headers)
        self.id = id


def http_refusal(refusal: RequestRefusal | None) -> HttpRefusal:
    """Return the HTTP error for a request that is refused as a whole."""
    if refusal is None:
        return HttpRefusal(500, "internal error", INTERNAL_ERROR)
    data = refusal.data()
    return HttpRefusal(
        refusal.status, refusal.text, refusal.code, data=data, headers=refusal.headers
    )


def add_challenge(error: BaseException, authenticator: Authenticator | None) -> None:
    """Add a challenge to an error about a missing scope, if clients authenticate here."""
    if isinstance(error, InsufficientScope) and not error.challenge and authenticator is not None:
        error.challenge = scope_challenge(authenticator.challenge, error.scopes)


def no_memory() -> HttpRefusal:
    """Return the error for a message that does not fit into memory at the moment."""
    text = "the request does not fit into memory; try again later"
    return HttpRefusal(503, text, INTERNAL_ERROR, headers=LATER)


class ClientGone(InterlockError):
    """The client has closed the connection, so no response can be sent."""


class Page(Struct, frozen=True):
    """A public document that is served at its own path."""

    body: bytes
    status: int = 200
    kind: bytes = JSON


async def reply(
    send: Send,
    status: int,
    body: bytes,
    headers: Iterable[Header] = (),
    *,
    ends: bool = True,
    kind: bytes = JSON,
) -> None:
    """Send a response with a body; if `ends` is False, more of the body follows."""
    media, length = (b"content-type", kind), (b"content-length", b"%d" % len(body))
    await send(
        {"type": "http.response.start", "status": status, "headers": [media, length, *headers]}
    )
    await send({"type": "http.response.body", "body": body, "more_body": not ends})


async def reply_empty(send: Send, status: int, headers: Iterable[Header] = ()) -> None:
    """Send a response without a body."""
    length = (b"content-length", b"0")
    every = list(headers) if status == 204 else [length, *headers]
    await send({"type": "http.response.start", "status": status, "headers": every})
    await send({"type": "http.response.body", "body": b""})


async def disconnected(receive: Receive) -> None:
    """Wait until the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def refuse(
    send: Send, refusal: HttpRefusal, headers: Iterable[Header] = (), *, ends: bool = True
) -> None:
    """Send an error response with a JSON-RPC error as its body."""
    body = envelope.error(refusal.id, refusal.code, refusal.message, refusal.data)
    await reply(send, refusal.status, body, [*refusal.headers, *headers], ends=ends)
