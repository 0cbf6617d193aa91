"""The options of `Server.asgi`: as keywords for type checkers, and with their defaults."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypedDict
from urllib.parse import quote

from msgspec import Struct

from interlock.auth import Authenticator, BearerAuth, Verify
from interlock.errors import ConfigError
from interlock.server.http.responses import Page, Receive, Scope, Send
from interlock.server.http.views import Views
from interlock.server.options import check_known

MakePage = Callable[[], Awaitable[Page]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class HttpKeywords(TypedDict, total=False):
    """The keyword arguments of `Server.asgi`. `HttpOptions` describes them."""

    path: str
    verify_token: Verify
    resource: str
    auth: Authenticator
    hosts: Sequence[str]
    origins: Sequence[str]
    cors: Sequence[str]
    sse: bool
    listen: bool
    stateless: bool
    health: str
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
    caller_headers: Sequence[str]


class HttpOptions(Struct, frozen=True, kw_only=True):
    """The options of a server over HTTP.

    Attributes:
        path: The endpoint's path, below the prefix at which the application is mounted.
        verify_token: Returns the principal of a bearer token. Without this and without `auth`, any
            client may call.
        resource: The endpoint's public URL, which clients use. Required with `verify_token`.
        auth: Identifies callers: a `BearerAuth`, `ApiKeyAuth`, `EitherAuth` or your own
            `Authenticator`. Use it instead of `verify_token` and `resource`.
        hosts: Allowed values of `Host`, with or without a port; "*" allows any value. None allows
            only names of loopback on loopback connections, and any value on other connections.
        origins: Allowed values of `Origin`, such as "https://example.com"; "*" allows any value. On
            loopback, pages from loopback are always allowed.
        cors: Origins whose web pages may read responses; "*" allows any origin.
        sse: Whether to serve clients of 2024-11-05, at `/sse` and `/messages` next to `path`.
        listen: Whether to offer `subscriptions/listen`, which keeps a connection open per client.
        stateless: Whether each request of a legacy client stands alone, so that any process can
            answer it. Such clients get no session, no questions and no notifications of changes.
        health: The path of a health check, such as "/healthz", which answers 200 without
            authentication once the lifespan is entered, and 503 while the server drains; "" for
            none.
        max_body_bytes: The largest request body; larger bodies get 413.
        max_sessions: The most sessions of legacy clients; further sessions get 503.
        max_sessions_per_principal: The most sessions of one principal.
        max_streams: The most streams that subscribers keep open; further streams get 503.
        max_streams_per_principal: The most streams that one principal keeps open.
        session_idle: The seconds without a request after which a session ends.
        json_silence: The seconds after which a response that is not ready becomes a stream, which
            begins with a comment. Clients that accept only JSON wait for the answer.
        keep_alive: The seconds of silence after which a comment is added to a stream.
        views: Named parts of the catalogue, at paths below `path`; callers must authenticate.
        pages: Public documents, each at its own path.
        beside: An ASGI application for all other paths. It must check Host and Origin itself.
        caller_headers: Names of headers that a gateway may pass on to servers, in lower case.
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
    stateless: bool = False
    health: str = ""
    max_body_bytes: int = 4 * 1024 * 1024
    max_sessions: int = 10_000
    max_sessions_per_principal: int = 100
    max_streams: int = 10_000
    max_streams_per_principal: int = 100
    session_idle: float = 1800.0
    json_silence: float = 1.0
    keep_alive: float = 5.0
    views: Views | None = None
    pages: Mapping[str, MakePage] = {}
    beside: AsgiApp | None = None
    caller_headers: Sequence[str] = ()

    @classmethod
    def read(cls, given: HttpKeywords) -> HttpOptions:
        """Return options that are given as keywords.

        Raises:
            SignatureError: An option is unknown.
        """
        check_known(given, cls)
        return cls(**given)

    def __post_init__(self) -> None:
        if self.sse and self.stateless:
            raise ConfigError("sse=True needs sessions; leave out sse or stateless")
        if self.health and self.health_path == b"/" + self.path.strip("/").encode():
            raise ConfigError(f"health={self.health!r} is the path of the endpoint; choose another")

    @property
    def health_path(self) -> bytes | None:
        """The path of the health check as requests name it; None without a health check."""
        return quote("/" + self.health.strip("/")).encode() if self.health else None

    @property
    def authenticator(self) -> Authenticator | None:
        """Return the authenticator that identifies callers; None if any client may call.

        Raises:
            ConfigError: `verify_token` is set without `resource`.
        """
        if self.auth is not None or self.verify_token is None:
            return self.auth
        if not self.resource:
            raise ConfigError("verify_token needs resource=..., the public URL of the endpoint")
        return BearerAuth(verify=self.verify_token, resource=self.resource)
