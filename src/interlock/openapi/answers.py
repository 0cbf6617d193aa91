"""The answer of an API to one request, over the network or from an application in this program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from interlock.transports.http_errors import phrase_of

Headers = list[tuple[str, str]]
EVENTS = "text/event-stream"


class OperationRequest(Struct, frozen=True):
    """One request, complete with its credentials.

    Attributes:
        method: HTTP method.
        url: The encoded URL.
        headers: Header names and values; a name may be repeated.
        body: The body; None for none.
        limit: The most bytes of the answer's body to read.
        deadline: The time to stop waiting, by the clock of the event loop.
    """

    method: str
    url: str
    headers: Headers
    body: bytes | None
    limit: int
    deadline: float


class ApiAnswer(Struct, frozen=True):
    """One answer.

    Attributes:
        status: HTTP status.
        headers: Header values by lower-case name; values of a repeated header joined by ", ".
        body: The decompressed body, up to the request's limit.
        url: The URL that was requested.
        is_cut: The body is longer than the limit.
        is_unfinished: The answer is a stream of events that was still open at the time limit.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str = ""
    is_cut: bool = False
    is_unfinished: bool = False

    @property
    def media_type(self) -> str:
        """The media type, without parameters, in lower case; "" for none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The parameter `charset` of the media type; "" for none."""
        for parameter in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                return value.strip().strip('"').lower()
        return ""

    @property
    def phrase(self) -> str:
        """The status with its usual phrase: "404 Not Found"."""
        return f"{self.status} {phrase_of(self.status)}".rstrip()


class Exchange(Protocol):
    """A way to send one request: over the network, or to an application in this program."""

    async def fetch(self, request: OperationRequest) -> ApiAnswer:
        """Send a request once, and read its answer. Redirects are not followed.

        A stream of events that is still open at the deadline is returned as far as it was read.

        Raises:
            Unreachable: Nothing was sent.
            TimeoutError: There was no whole answer before the deadline.
            StreamEnded: The answer was cut off, or there was none.
            RemoteProtocolError: The answer is not HTTP, or its encoding is unknown or wrong.
        """
        ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...
