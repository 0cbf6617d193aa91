"""Requests to an API and its answers, over the network or from an application in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from interlock.transports.http_errors import phrase_of

Headers = list[tuple[str, str]]
EVENTS = "text/event-stream"


class OperationRequest(Struct, frozen=True):
    """One request to an API, with its credentials.

    Attributes:
        method: The HTTP method.
        url: The encoded URL.
        headers: Header names and values; a name may be repeated.
        body: The body; None if the request has no body.
        limit: The most bytes of the answer's body to read.
        deadline: When to stop waiting for the answer, by the event loop's clock.
    """

    method: str
    url: str
    headers: Headers
    body: bytes | None
    limit: int
    deadline: float


class ApiAnswer(Struct, frozen=True):
    """The API's answer to one request.

    Attributes:
        status: The HTTP status.
        headers: Header values by lower-case name; values of a repeated header joined by ", ".
        body: The decompressed body, up to the request's limit.
        url: The URL that was requested.
        is_cut: Whether `body` was cut at the limit.
        is_unfinished: Whether the answer is an event stream that was still open at the deadline.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str = ""
    is_cut: bool = False
    is_unfinished: bool = False

    @property
    def media_type(self) -> str:
        """The media type in lower case, without parameters; "" without a Content-Type."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The `charset` parameter of the Content-Type; "" if it has none."""
        for parameter in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip('"').lower()
        return ""

    @property
    def phrase(self) -> str:
        """The status with its reason phrase, such as "404 Not Found"."""
        return f"{self.status} {phrase_of(self.status)}".rstrip()


class Exchange(Protocol):
    """The interface that sends requests, over the network or to an application in this process."""

    async def fetch(self, request: OperationRequest) -> ApiAnswer:
        """Send a request once, and read its answer. Redirects are not followed.

        If an event stream is still open at the deadline, the part read so far is returned.

        Raises:
            Unreachable: Nothing was sent.
            TimeoutError: The answer was not complete at the deadline.
            StreamEnded: The connection ended before the answer was complete.
            RemoteProtocolError: The answer is not HTTP, or its encoding is unknown or wrong.
        """
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...
