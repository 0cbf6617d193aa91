"""How a client reaches a server by a URL: its transports, and what is known about it."""

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
from interlock.transports.http_endpoint import Endpoint
from interlock.transports.http_pool import Era, HttpPool
from interlock.transports.http_sse import SseTransport
from interlock.types import Tool

HttpKind = Literal["auto", "streamable", "sse"]
_E = TypeVar("_E", bound=InterlockError)


class HttpTarget:
    """A server's URL, and what was found out about it.

    Args:
        url: http or https.
        headers: For every request.
        authorization: Where the bearer token comes from.
        kind: Which transport; "auto" tries the newer one first.
        pool: Its connections; an own one when None.
        max_frame_bytes: Longest message accepted.

    Attributes:
        authorization: As given.
        is_refused: The authorization could not help.
        tool_headers: Which arguments of its tools headers repeat.

    Raises:
        ConfigError: A URL or header that cannot be used.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None,
        authorization: Authorization | None,
        kind: HttpKind,
        pool: HttpPool | None,
        max_frame_bytes: int,
    ) -> None:
        self.authorization = authorization
        self.is_refused = False
        self.tool_headers = tool_headers.ToolHeaders()
        self._kind = kind
        self._own_pool = pool is None
        self._pool = pool or HttpPool()
        self._url = url
        self._endpoint = Endpoint(url, self._pool, headers, authorization, max_frame_bytes)
        self._host = urlsplit(self._endpoint.shown).netloc

    def named(self, error: _E) -> _E:
        """Let an error say which server it is about; what that says itself is left as it is."""
        shown = self._endpoint.shown
        if self._host not in str(error) and not isinstance(error, RemoteError):
            error.args = (f"{shown}: {error}", *error.args[1:])
        return error

    @property
    def era(self) -> Era:
        """What the server was last found to speak; "" when nobody has found out."""
        if self._kind == "sse":
            return "sse"
        found = self._pool.eras.get(self._url, "")
        return "" if found == "sse" and self._kind == "streamable" else found

    def learn(self, transport: Transport, revision: str) -> None:
        """Remember what the server was found to speak."""
        if self._kind == "sse":
            return  # nobody has looked for anything else
        era: Era = "modern" if revisions.is_modern(revision) else "legacy"
        self._pool.eras[self._url] = "sse" if isinstance(transport, SseTransport) else era

    def unlearn(self) -> bool:
        """Forget what it was found to speak; False when nothing was known."""
        return bool(self._pool.eras.pop(self._url, ""))

    @property
    def may_try_legacy_unauthorized(self) -> bool:
        """Whether to try the legacy handshake when 401 or 403 cannot be helped."""
        return self.authorization is None or self.is_refused

    @property
    def may_fall_back_to_sse(self) -> bool:
        """Whether HTTP+SSE is worth a try when all else has failed."""
        return self._kind == "auto"

    def connect(self) -> Transport:
        """Make a transport for servers that take each message as a POST."""
        return HttpTransport(self._endpoint, self.tool_headers)

    def connect_oldest(self) -> Transport:
        """Make a transport for HTTP+SSE."""
        return SseTransport(self._endpoint)

    def check_tools(self, tools: Listing[Tool]) -> None:
        """Learn the tools' headers, and leave out each tool whose annotations are not valid."""
        learnt = tool_headers.ToolHeaders()
        valid = []
        for tool in tools:
            try:
                learnt.learn(tool)
            except SchemaError as error:
                tools.skipped.append(f"tool {tool.name!r} is left out: {error}")
            else:
                valid.append(tool)
        tools[:] = valid
        self.tool_headers.replace(learnt)

    async def close(self) -> None:
        """Close the connections, unless others use them, too."""
        if self._own_pool:
            await self._pool.close()
