"""A server at a URL: its transports, and the facts that earlier connections have found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from interlock import revisions
from interlock.client.listing import Listing
from interlock.errors import InterlockError, RemoteError, SchemaError
from interlock.protocol import headers as tool_headers
from interlock.text import urls
from interlock.transports import Authorization, Transport
from interlock.transports.http import HttpTransport
from interlock.transports.http_endpoint import HttpEndpoint
from interlock.transports.http_pool import Era, HttpPool
from interlock.transports.http_sse import SseTransport
from interlock.transports.trace import Trace
from interlock.types import Tool

HttpKind = Literal["auto", "streamable", "sse"]
_E = TypeVar("_E", bound=InterlockError)


class HttpTarget:
    """A server's URL, with the facts about the server that earlier connections have found.

    Args:
        url: The http or https URL.
        headers: Headers for every request.
        authorization: The source of the bearer token; None to send no token.
        kind: The kind of transport; "auto" tries Streamable HTTP before HTTP+SSE.
        pool: A shared pool of HTTP connections; None to create a pool.
        max_frame_bytes: The size of the largest accepted message.
        trace: Records requests and answers; None to record nothing.

    Attributes:
        authorization: The argument `authorization`.
        is_refused: Whether the server has rejected every token that could be obtained.
        tool_headers: The tool arguments to repeat as headers.

    Raises:
        ConfigError: The URL or a header is not usable.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None,
        authorization: Authorization | None,
        kind: HttpKind,
        pool: HttpPool | None,
        max_frame_bytes: int,
        trace: Trace | None = None,
    ) -> None:
        self.authorization = authorization
        self.is_refused = False
        self.tool_headers = tool_headers.ToolHeaders()
        self._kind = kind
        self._own_pool = pool is None
        self._pool = pool or HttpPool()
        self._url = url
        self._endpoint = HttpEndpoint(
            url, self._pool, headers, authorization, max_frame_bytes, trace
        )
        self._host = urlsplit(self._endpoint.shown).netloc

    def named(self, error: _E) -> _E:
        """Prefix an error's text with the server's URL, unless the server wrote the text."""
        shown = self._endpoint.shown
        if self._host not in str(error) and not isinstance(error, RemoteError):
            error.args = (f"{shown}: {error}", *error.args[1:])
        return error

    @cached_property
    def address(self) -> tuple[str, int]:
        """The server's host and port."""
        return urls.address(self._endpoint.shown)

    @property
    def era(self) -> Era:
        if self._kind == "sse":
            return "sse"
        found = self._pool.eras.get(self._url, "")
        return "" if found == "sse" and self._kind == "streamable" else found

    def remember_era(self, transport: Transport, revision: str) -> None:
        """Store the server's era for later connections."""
        if self._kind == "sse":
            return  # no other era was tried
        era: Era = "modern" if revisions.is_modern(revision) else "legacy"
        self._pool.eras[self._url] = "sse" if isinstance(transport, SseTransport) else era

    def forget_era(self) -> bool:
        """Delete the stored era; return whether an era was stored."""
        return bool(self._pool.eras.pop(self._url, ""))

    @property
    def may_try_legacy_unauthorized(self) -> bool:
        return self.authorization is None or self.is_refused

    @property
    def may_fall_back_to_sse(self) -> bool:
        return self._kind == "auto"

    def connect(self) -> Transport:
        return HttpTransport(self._endpoint, self.tool_headers)

    def connect_oldest(self) -> Transport:
        return SseTransport(self._endpoint)

    def check_tools(self, tools: Listing[Tool]) -> None:
        """Read the header annotations of tools; drop tools with invalid annotations."""
        found = tool_headers.ToolHeaders()
        valid = []
        for tool, definition in zip(tools, tools.definitions, strict=True):
            try:
                found.learn(tool)
            except SchemaError as error:
                tools.skipped.append(f"tool {tool.name!r} is left out: {error}")
            else:
                valid.append((tool, definition))
        tools[:] = [tool for tool, _ in valid]
        tools.definitions[:] = [definition for _, definition in valid]
        self.tool_headers.replace(found)

    async def close(self) -> None:
        """Close the HTTP connections, unless they belong to a shared pool."""
        if self._own_pool:
            await self._pool.close()
