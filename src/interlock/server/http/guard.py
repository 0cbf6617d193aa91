"""Checks of `Host` and `Origin`, which come before anything else in a request is used.

A web page can make the browser send requests to servers on the same machine. So on loopback,
`Host` and `Origin` must both name loopback, unless other names are allowed. On other addresses,
`Host` is checked only if hosts are configured, and an `Origin` is refused unless it is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence

from interlock.server.http.proxies import BEHIND_PROXY, stated_origin
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import Header, HttpRefusal
from interlock.text.urls import is_loopback

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_ALLOWED_HEADERS = (
    b"Authorization, Content-Type, Accept, MCP-Protocol-Version, Mcp-Method, Mcp-Name, "
    b"Mcp-Session-Id, Last-Event-ID, X-API-Key"
)
_HOST_REFUSED = (
    "this Host is not allowed; list it: in gateway.hosts of the configuration,"
    " or in code with asgi(hosts=[...])"
)
_MAX_CACHED = 1000  # accepted combinations of Host, Origin and address that are cached
_MAX_LENGTH = 300  # bytes of Host and Origin together, twice the usual; longer are not cached


class Guard:
    """The check of `Host` and `Origin` of every request.

    Args:
        hosts: Allowed values of `Host`, with or without a port; "*" allows any value. None allows
            only names of loopback on loopback connections, and any value on other connections.
        origins: Allowed values of `Origin`, such as "https://example.com"; "*" allows any value.
        cors: Origins whose web pages may read responses; they need not be in `origins`.
        headers: Further headers that those pages may send.

    Attributes:
        allowed: Combinations of Host, Origin and address that have passed the check. A request with
            such a combination, no repeated headers and no Origin passes at once.
    """

    def __init__(
        self,
        hosts: Sequence[str] | None,
        origins: Sequence[str],
        cors: Sequence[str],
        headers: Sequence[str] = (),
    ) -> None:
        self._hosts = None if hosts is None else frozenset(each.lower() for each in hosts)
        self._origins = frozenset((*origins, *cors))
        self._cors = frozenset(cors)
        self._allowed_headers = b", ".join([_ALLOWED_HEADERS, *(each.encode() for each in headers)])
        self.allowed: set[tuple[bytes | None, bytes | None, object]] = set()

    def check(self, request: HttpRequest) -> None:
        """Check the `Host` and `Origin` of one request.

        Raises:
            HttpRefusal: 403: `Host` or `Origin` is not allowed.
        """
        if request.repeated:
            request.check_single()
        server = request.scope.get("server")
        address = server[0] if server else None
        headers = request.headers
        host, origin = headers.get(b"host"), headers.get(b"origin")
        stated = stated_origin(request.scope)
        if stated:
            if self._hosts is not None:
                self._check_host(stated.partition("://")[2].encode(), True)
            if origin is not None and origin.decode("latin-1").lower() == stated:
                origin = None  # a page that the client got from this very server
        key = (host, origin, address)
        if key not in self.allowed:
            local = is_loopback(str(address))
            self._check_host(host, local or address == BEHIND_PROXY)
            self._check_origin(origin, local)
            if len(self.allowed) >= _MAX_CACHED:
                self.allowed.clear()
            if len(host or b"") + len(origin or b"") <= _MAX_LENGTH:
                self.allowed.add(key)
        origin = headers.get(b"origin")
        if self._cors and origin is not None:
            request.extra += self._cors_headers(origin)

    def _check_host(self, host: bytes | None, local: bool) -> None:
        if self._hosts is None and not local:
            return
        allowed = frozenset(LOOPBACK) if self._hosts is None else self._hosts
        name = "" if host is None else host.decode("latin-1").lower()
        if "*" not in allowed and name not in allowed and _without_port(name) not in allowed:
            raise HttpRefusal(403, _HOST_REFUSED)

    def _check_origin(self, origin: bytes | None, local: bool) -> None:
        if origin is None or "*" in self._origins:
            return
        text = origin.decode("latin-1")
        if text in self._origins:
            return
        scheme, _, host = text.lower().partition("://")
        if local and scheme in ("http", "https") and _without_port(host) in LOOPBACK:
            return
        raise HttpRefusal(403, "this Origin is not allowed; in code, list it: asgi(origins=[...])")

    # CORS

    def preflight(self, request: HttpRequest) -> list[Header] | None:
        """Return the headers for an allowed CORS preflight request; None for other requests."""
        if not request.extra or b"access-control-request-method" not in request.headers:
            return None
        wanted = request.headers.get(b"access-control-request-headers", b"")
        custom = [
            name
            for each in wanted.split(b",")
            if (name := each.strip()).lower().startswith(b"mcp-param-") and name.isascii()
        ]
        return [
            *request.extra,
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"access-control-allow-headers", b", ".join([self._allowed_headers, *custom])),
            (b"access-control-max-age", b"600"),
        ]

    def _cors_headers(self, origin: bytes) -> list[Header]:
        if "*" not in self._cors and origin.decode("latin-1") not in self._cors:
            return []
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate, Retry-After"),
            (b"vary", b"Origin"),
        ]


def _without_port(name: str) -> str:
    host, colon, port = name.rpartition(":")
    return host if colon and port.isdecimal() and not host.endswith(":") else name
