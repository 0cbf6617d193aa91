"""The options of `Server.asgi`: once for type checkers, once with their defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypedDict

from msgspec import Struct

from interlock.auth import Authenticator, BearerAuth, Verify
from interlock.errors import ConfigError
from interlock.server.http.responses import Page, Receive, Scope, Send
from interlock.server.http.views import Views

MakePage = Callable[[], Awaitable[Page]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class HttpKeywords(TypedDict, total=False):
    """The keyword arguments of `Server.asgi`. See `HttpOptions`."""

    path: str
    verify_token: Verify
    resource: str
    auth: Authenticator
    hosts: Sequence[str]
    origins: Sequence[str]
    cors: Sequence[str]
    sse: bool
    listen: bool
    max_body_bytes: int
    max_sessions: int
    max_sessions_per_principal: int
    max_streams: int
    max_streams_per_principal: int
    session_idle: float
    json_silence: float
    keep_alive: float
    views: Views | None
    pages: Mapping[str, MakePage]
    beside: AsgiApp | None


class HttpOptions(Struct, frozen=True, kw_only=True):
    """The HTTP options of a server.

    Attributes:
        path: Path of the endpoint, below the prefix that the application is mounted at.
        verify_token: Returns the owner of a bearer token. Without it and without `auth`, any
            client may call.
        resource: The endpoint's public URL, as clients use it. Required with `verify_token`.
        auth: Identifies callers: a `BearerAuth`, `ApiKeyAuth`, `EitherAuth` or your own
            `Authenticator`, instead of the two options above.
        hosts: Allowed values of `Host`, with or without a port; "*" allows any. None: the names of
            loopback for connections to loopback, otherwise any.
        origins: Allowed values of `Origin`, such as "https://example.com"; "*" allows any.
            Pages from loopback are allowed on loopback.
        cors: Origins whose pages may read the replies; "*" allows any.
        sse: Whether to serve clients of 2024-11-05, at `/sse` and `/messages` beside `path`.
        listen: Whether to offer `subscriptions/listen`, which holds a connection for each client.
        max_body_bytes: Largest request body; a larger one gets 413.
        max_sessions: Maximum sessions of legacy clients; the next one gets 503.
        max_sessions_per_principal: Maximum sessions of one principal.
        max_streams: Maximum streams held open for subscribers; the next one gets 503.
        max_streams_per_principal: Maximum streams held open for one principal.
        session_idle: Seconds without a request after which a session ends.
        json_silence: Seconds without a message after which a reply becomes a stream.
        keep_alive: Seconds of silence between two comments in a stream.
        views: Parts of the catalogue, at paths below `path`; callers must authenticate.
        pages: Public documents at further paths.
        beside: Serves all other paths. It must check Host and Origin itself.
    """

    path: str = "/mcp"
    verify_token: Verify | None = None
    resource: str = ""
    auth: Authenticator | None = None
    hosts: Sequence[str] | None = None
    origins: Sequence[str] = ()
    cors: Sequence[str] = ()
    sse: bool = False
    listen: bool = True
    max_body_bytes: int = 4 * 1024 * 1024
    max_sessions: int = 10_000
    max_sessions_per_principal: int = 100
    max_streams: int = 10_000
    max_streams_per_principal: int = 100
    session_idle: float = 1800.0
    json_silence: float = 10.0
    keep_alive: float = 15.0
    views: Views | None = None
    pages: Mapping[str, MakePage] = {}
    beside: AsgiApp | None = None

    @property
    def authenticator(self) -> Authenticator | None:
        """The authenticator that identifies callers; None if any client may call.

        Raises:
            ConfigError: `verify_token` without `resource`.
        """
        if self.auth is not None or self.verify_token is None:
            return self.auth
        if not self.resource:
            raise ConfigError("verify_token needs resource=..., the public URL of the endpoint")
        return BearerAuth(verify=self.verify_token, resource=self.resource)
