"""A server at a URL: its transports, and what earlier connections have learned about it."""

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
    """A server's URL, and what is known about the server.

    Args:
        url: http or https.
        headers: For every request.
        authorization: Where the bearer token comes from.
        kind: Which transport; "auto" tries the newer one first.
        pool: HTTP connections to use; its own when None.
        max_frame_bytes: Longest message accepted.
        trace: Where requests and their answers are noted; None for nowhere.

    Attributes:
        authorization: As given.
        is_refused: The server rejected every token that the authorization could get.
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
        """Put the server's URL in front of an error, unless the text is the server's own."""
        shown = self._endpoint.shown
        if self._host not in str(error) and not isinstance(error, RemoteError):
            error.args = (f"{shown}: {error}", *error.args[1:])
        return error

    @property
    def era(self) -> Era:
        """The era that the server spoke last; "" if it is not known."""
        if self._kind == "sse":
            return "sse"
        found = self._pool.eras.get(self._url, "")
        return "" if found == "sse" and self._kind == "streamable" else found

    def remember_era(self, transport: Transport, revision: str) -> None:
        """Remember which era the server speaks."""
        if self._kind == "sse":
            return  # nothing else was tried
        era: Era = "modern" if revisions.is_modern(revision) else "legacy"
        self._pool.eras[self._url] = "sse" if isinstance(transport, SseTransport) else era

    def forget_era(self) -> bool:
        """Forget which era the server speaks; return whether it was known."""
        return bool(self._pool.eras.pop(self._url, ""))

    @property
    def may_try_legacy_unauthorized(self) -> bool:
        """Whether to try the legacy handshake after a 401 or 403 that no token resolves."""
        return self.authorization is None or self.is_refused

    @property
    def may_fall_back_to_sse(self) -> bool:
        """Whether to try HTTP+SSE when everything else has failed."""
        return self._kind == "auto"

    def connect(self) -> Transport:
        """Make a Streamable HTTP transport."""
        return HttpTransport(self._endpoint, self.tool_headers)

    def connect_oldest(self) -> Transport:
        """Make an HTTP+SSE transport."""
        return SseTransport(self._endpoint)

    def check_tools(self, tools: Listing[Tool]) -> None:
        """Read which tool arguments headers repeat; drop tools whose annotations are invalid."""
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
