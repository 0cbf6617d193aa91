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
    """How a server is offered over HTTP.

    Attributes:
        path: Path of the endpoint, below the prefix that the application is mounted at.
        verify_token: Returns the owner of a bearer token. Without it and without `auth`,
            everybody may call.
        resource: The endpoint's public URL, as clients write it. Needed with `verify_token`.
        auth: Identifies callers: a `BearerAuth`, `ApiKeyAuth`, `EitherAuth` or your own
            `Authenticator`, instead of the two options above.
        hosts: Allowed values of `Host`, with or without a port; "*" is any. None: the names of
            loopback for connections to loopback, otherwise any.
        origins: Allowed values of `Origin`, such as "https://example.com"; "*" is any.
            Pages from loopback are allowed on loopback.
        cors: Origins whose pages may read the replies; "*" is any.
        sse: Also serve clients of 2024-11-05, at `/sse` and `/messages` beside `path`.
        listen: Offer `subscriptions/listen`, which holds a connection for each client.
        max_body_bytes: Largest request body; a larger one gets 413.
        max_sessions: Sessions of legacy clients; the next one gets 503.
        max_sessions_per_principal: Sessions of one principal.
        max_streams: Streams held open for subscribers; the next one gets 503.
        max_streams_per_principal: Streams held open for one principal.
        session_idle: Seconds without a request after which a session is ended.
        json_silence: Seconds without a message after which a reply becomes a stream.
        keep_alive: Seconds of silence between two comments in a stream.
        views: Parts of what is served, at paths below `path`; callers must authenticate.
        pages: What everybody may GET at further paths.
        beside: Serves all other paths. It checks Host and Origin itself.
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
        """What identifies callers; None if everybody may call.

        Raises:
            ConfigError: `verify_token` without `resource`.
        """
        if self.auth is not None or self.verify_token is None:
            return self.auth
        if not self.resource:
            raise ConfigError("verify_token needs resource=..., the public URL of the endpoint")
        return BearerAuth(verify=self.verify_token, resource=self.resource)
