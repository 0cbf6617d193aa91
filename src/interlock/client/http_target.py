"""A server at a URL: its transports, and the facts that earlier connections have found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from interlock import revisions
from interlock.client.listing import Listing
from interlock.errors import InterlockError, RemoteError, SchemaError
from interlock.protocol import headers as tool_headers
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
    """A server's URL, with the known facts about the server.

    Args:
        url: The http or https URL.
        headers: Headers of every request.
        authorization: The source of the bearer token.
        kind: The kind of transport; "auto" tries the newer one first.
        pool: The pool of HTTP connections; None for a pool of its own.
        max_frame_bytes: The largest accepted message.
        trace: The record of requests and answers; None for none.

    Attributes:
        authorization: The given source of tokens.
        is_refused: Whether the server has rejected every token that the source could get.
        tool_headers: The tool arguments that must be repeated as headers.

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
        """Prefix an error's text with the server's URL, unless the text is the server's own."""
        shown = self._endpoint.shown
        if self._host not in str(error) and not isinstance(error, RemoteError):
            error.args = (f"{shown}: {error}", *error.args[1:])
        return error

    @property
    def era(self) -> Era:
        if self._kind == "sse":
            return "sse"
        found = self._pool.eras.get(self._url, "")
        return "" if found == "sse" and self._kind == "streamable" else found

    def remember_era(self, transport: Transport, revision: str) -> None:
        """Store the era of the server for later connections."""
        if self._kind == "sse":
            return  # no other era was tried
        era: Era = "modern" if revisions.is_modern(revision) else "legacy"
        self._pool.eras[self._url] = "sse" if isinstance(transport, SseTransport) else era

    def forget_era(self) -> bool:
        """Delete the stored era; return whether there was one."""
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
