"""The events of a connection: answers, requests and notifications of the peer."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw, Struct

from interlock.errors import InterlockError, RemoteProtocolError
from interlock.types import RequestId


class Answer(Struct, frozen=True, gc=False):
    """The peer answered our request `id` with `result`, which is still encoded."""

    id: RequestId
    result: Raw


class Failure(Struct, frozen=True):
    """Our request `id` failed with an error such as `RemoteError` or `RequestTimeout`."""

    id: RequestId
    error: InterlockError


class Progress(Struct, frozen=True, gc=False):
    """The peer reported progress on our request `id`."""

    id: RequestId
    progress: float
    total: float | None = None
    message: str | None = None


class Request(Struct, frozen=True, gc=False):
    """The peer sent a request, to be answered with `reply` or `reply_error`.

    `during` is the id of our request on whose stream the message arrived; None if the transport
    has one stream for all messages.
    """

    id: RequestId
    method: str
    params: Raw
    during: RequestId | None = None


class Cancellation(Struct, frozen=True, gc=False):
    """The peer cancelled its request `id`; it must not be answered any more."""

    id: RequestId
    reason: str = ""


class Notification(Struct, frozen=True, gc=False):
    """The peer sent a notification other than progress and cancellation.

    `during` has the same meaning as in `Request`.
    """

    method: str
    params: Raw
    during: RequestId | None = None


class Overrun(Struct, frozen=True):
    """The peer sent too many malformed messages; close the connection with `error`."""

    error: RemoteProtocolError


class Stray(Struct, frozen=True):
    """The peer sent an error without an id, which belongs to none of the open requests for sure.

    Attributes:
        error: The error.
        open: The number of requests that the peer has not answered, including those that this side
            gave up.
    """

    error: InterlockError
    open: int


Event = Answer | Failure | Progress | Request | Cancellation | Notification | Overrun | Stray
"""An event of `Protocol.receive`."""

ProgressHandler = Callable[[Progress], None]
"""Called with each report of progress of a request."""
