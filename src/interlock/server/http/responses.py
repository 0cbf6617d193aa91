"""Plain HTTP replies, and refusals of requests that reach no handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from msgspec import Struct

from interlock.errors import InterlockError
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
# An extension of ASGI: `extensions[AT_ONCE](scope, body)` answers the request of a scope with
# status 200 and JSON, and returns True, unless the host needs messages for it. Two messages for
# each response take a host more time than most of the steps before them.
AT_ONCE = "interlock.at_once"
AtOnce = Callable[[Scope, bytes], bool]


class HttpRefusal(InterlockError):
    """A request that is answered with a status and a JSON-RPC error.

    Args:
        status: HTTP status.
        message: One line for the client, without any secret of the request.
        code: JSON-RPC error code.
        data: Details of the error.
        headers: Further headers of the reply.
        id: The request's id, if it can be read.
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
    """Return the HTTP reply to a request that is refused as a whole."""
    if refusal is None:
        return HttpRefusal(500, "internal error", INTERNAL_ERROR)
    data = refusal.data()
    return HttpRefusal(
        refusal.status, refusal.text, refusal.code, data=data, headers=refusal.headers
    )


def no_memory() -> HttpRefusal:
    """Return the refusal of a message that does not fit into memory now."""
    text = "the request does not fit into memory; try again later"
    return HttpRefusal(503, text, INTERNAL_ERROR, headers=LATER)


class ClientGone(InterlockError):
    """The client closed the connection, so nothing can be sent."""


class Page(Struct, frozen=True):
    """A document at a path of its own."""

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
    """Send a body of a media type; the response stays open unless it `ends`."""
    media, length = (b"content-type", kind), (b"content-length", b"%d" % len(body))
    await send(
        {"type": "http.response.start", "status": status, "headers": [media, length, *headers]}
    )
    await send({"type": "http.response.body", "body": body, "more_body": not ends})


async def reply_empty(send: Send, status: int, headers: Iterable[Header] = ()) -> None:
    """Send a status without a body."""
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
    """Send a refusal as a JSON-RPC error."""
    body = envelope.error(refusal.id, refusal.code, refusal.message, refusal.data)
    await reply(send, refusal.status, body, [*refusal.headers, *headers], ends=ends)
