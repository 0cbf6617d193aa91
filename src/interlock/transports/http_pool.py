"""The pool of HTTP connections that all servers in a toolbox share."""

from __future__ import annotations

import asyncio
import errno
import socket
from functools import cache, partial
from typing import Literal, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from interlock.aio import in_thread
from interlock.errors import ConfigError
from interlock.text.urls import is_loopback

Era = Literal["", "modern", "legacy", "sse"]
_T = TypeVar("_T")

# The most concurrent requests to one host; further requests wait. Lasting streams are not counted,
# because with many servers on one host they would leave no connection for requests. Our responses
# are not counted either, because requests that use all connections may be waiting for them.
MAX_CONNECTIONS = 100
# Common servers close an idle connection after 5 s, and lose a request that is sent at that moment.
# So the client closes idle connections earlier.
KEEP_ALIVE = 4.0  # seconds
CONNECT_TIMEOUT = 10.0  # seconds for DNS, connection and TLS together
MAX_HEADER_BYTES = 64 * 1024  # bytes in one header of an answer
MAX_HEADERS = 256  # headers in an answer
NAMES_TTL = 30  # seconds for which a host's addresses are cached
MAX_REMEMBERED = 1_000  # the most URLs whose facts are remembered

_AS_NUMBERS = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


@cache
def deadline(silence: float | None = None) -> aiohttp.ClientTimeout:
    """Return the timeouts of a request: to connect, and until the next bytes of its response.

    Args:
        silence: Seconds until the next bytes; None for no limit.
    """
    return aiohttp.ClientTimeout(
        total=None,
        connect=None,
        sock_connect=CONNECT_TIMEOUT,
        sock_read=silence,
        ceil_threshold=2 * CONNECT_TIMEOUT,
    )


class _Latest(dict[str, _T]):
    """A dict that keeps only the `MAX_REMEMBERED` most recently set keys."""

    def __setitem__(self, key: str, value: _T) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > MAX_REMEMBERED:
            del self[next(iter(self))]


class HttpPool:
    """HTTP connections that many clients share in one event loop; the creator closes the pool.

    Proxies come from the environment (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`),
    certificates from the system, or from `SSL_CERT_FILE` and `SSL_CERT_DIR`. Cookies are not
    kept, redirects are not followed, and a `.netrc` is not read.

    Attributes:
        eras: The detected protocol of each URL: "modern", "legacy" or "sse".
    """

    def __init__(self) -> None:
        self.eras: dict[str, Era] = _Latest()
        self._session: aiohttp.ClientSession | None = None
        self._streams: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str | None] = _Latest()

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = _open(MAX_CONNECTIONS)
        return self._session

    @property
    def streams(self) -> aiohttp.ClientSession:
        """The session for lasting streams and our responses, which must not wait for others."""
        if self._streams is None or self._streams.closed:
            self._streams = _open(0)
        return self._streams

    def proxy(self, url: str) -> str | None:
        """Return the proxy that the environment sets for a URL; None to connect directly.

        Raises:
            ConfigError: The proxy is invalid or of an unsupported kind.
        """
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._proxies:
            self._proxies[origin] = _proxy_for(parts.scheme, parts.hostname or "", parts.netloc)
        return self._proxies[origin]

    async def close(self) -> None:
        """Close all connections; a second call has no effect."""
        sessions = self._session, self._streams
        self._session = self._streams = None
        for session in sessions:
            if session is not None:
                await session.close()
        await asyncio.sleep(0)  # the event loop closes the sockets in its next turn


class _Names(AbstractResolver):
    """A resolver with a thread for each lookup, so that a lookup that hangs delays no other."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        kind, flags = socket.SOCK_STREAM, socket.AI_ADDRCONFIG
        look_up = partial(socket.getaddrinfo, host, port, family, kind, 0, flags)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                found = await in_thread(look_up)
        except TimeoutError:
            raise OSError(errno.ETIMEDOUT, "the lookup of its name timed out") from None
        except RuntimeError as error:  # the system cannot start another thread
            raise OSError(errno.EAGAIN, f"its name cannot be looked up: {error}") from None
        return [
            {
                "hostname": host,
                "host": socket.getnameinfo(address, _AS_NUMBERS)[0],  # with its zone, if it has one
                "port": port,
                "family": kind_of_address,
                "proto": protocol,
                "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            }
            for kind_of_address, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Do nothing, because the resolver keeps nothing open."""


def _open(limit_per_host: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=_Names(),
            limit=0,
            limit_per_host=limit_per_host,
            keepalive_timeout=KEEP_ALIVE,
            ttl_dns_cache=NAMES_TTL,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=deadline(),  # `Protocol` has the timeout of each request
        auto_decompress=False,  # `Inflater` decompresses, with a limit
        read_bufsize=2**18,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        max_headers=MAX_HEADERS,
    )


def _proxy_for(scheme: str, host: str, netloc: str) -> str | None:
    is_here = is_loopback(host) or host.endswith(".localhost")
    if is_here or proxy_bypass(netloc.rpartition("@")[2]):
        return None
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if proxy is None:
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    try:
        kind = urlsplit(proxy).scheme
        URL(proxy)
    except ValueError:
        raise ConfigError(
            f"the proxy for {host} is not a valid URL; change {scheme.upper()}_PROXY"
        ) from None
    if kind not in ("http", "https"):
        raise ConfigError(
            f"the proxy for {host} is of kind {kind!r}, not http or https; change "
            f"{scheme.upper()}_PROXY, or add the host to NO_PROXY"
        )
    return proxy
