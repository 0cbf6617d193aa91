"""HTTP requests to URLs that come from servers: for metadata, registration and tokens.

A server must not be able to reach, through such a URL, hosts that only this machine can reach.
Rules:

1. URLs must be https; http is allowed only for this machine.
2. All IP addresses of a host are checked, and the connection uses a checked address without a
   second DNS lookup. The TLS certificate must match the host name.
3. Only public IP addresses are allowed. If the server that the user chose is on this machine or in
   a private network, addresses of that kind are allowed, too.
4. Redirects are not followed, because credentials must not reach another origin. Only a POST is
   repeated once at a URL of the same origin, after 307 or 308, which mean that it had no effect.
   Cookies and `.netrc` are not used. Body size and time are limited.
5. An error names the host and the cause in one line, without the query and without credentials.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import lru_cache, partial
from typing import TypeVar
from urllib.parse import urlencode, urljoin
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.http import HttpProcessingError
from yarl import URL

from interlock.aio import in_thread
from interlock.errors import (
    AuthError,
    HttpError,
    InterlockError,
    ParseError,
    RedirectRefused,
    RemoteProtocolError,
    RequestTimeout,
    StreamEnded,
    Unreachable,
)
from interlock.oauth import addresses
from interlock.protocol.content_encoding import Inflater
from interlock.protocol.envelope import check_bounds
from interlock.text.quoting import clip
from interlock.text.redaction import Redacted
from interlock.text.surrogates import repair_json
from interlock.text.urls import display
from interlock.types import JsonObject

TIMEOUT = 10.0  # seconds for a whole request: DNS, connection, TLS and response
MAX_BODY_BYTES = 1_048_576  # bytes of a response body, decompressed
MAX_URL = 8_192  # characters

Resolver = Callable[[str, int], Awaitable[list[str]]]
_T = TypeVar("_T")
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)  # OpenSSL's error codes for an unknown CA
_REDIRECTS = (301, 302, 303, 307, 308)
_KEEPING = (307, 308)  # the redirects that keep the method and the body
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)
_HEADERS = {
    "User-Agent": "interlock",
    "Accept": "application/json",  # because some token endpoints respond with a form by default
    "Accept-Encoding": "gzip, deflate",
}
# The characters in a URL, and in a host name or IP address, that all URL parsers treat alike.
_VISIBLE = re.compile(r"[!#-;=?-\[\]_a-z~]+")
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


class FetchedResponse(Redacted, frozen=True):
    """An HTTP response whose status can be anything except a redirect.

    Attributes:
        status: HTTP status.
        headers: The response headers; their names are case-insensitive.
        body: The decompressed response body.
        url: The URL that was requested.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("status", self.status), ("url", display(self.url))]

    @property
    def is_json_object(self) -> bool:
        """Whether the body begins like a JSON object, and not like a page for people."""
        return self._text.lstrip()[:1] == b"{"

    @property
    def _text(self) -> bytes:
        return self.body.removeprefix(codecs.BOM_UTF8)

    def json(self, type: type[_T] = JsonObject) -> _T:  # type: ignore[assignment]  # the default T
        """Decode the body as JSON; a byte order mark is ignored.

        Args:
            type: The expected type: a struct, or a dict.

        Raises:
            HttpError: The body is not JSON, or has another type. The error does not show the body.
        """
        body = repair_json(self._text)
        try:
            decoded = msgspec.json.decode(body, type=type)
            check_bounds(body)
            return decoded
        except (msgspec.ValidationError, ParseError) as error:
            reason = str(error)
        except (msgspec.DecodeError, UnicodeDecodeError):
            reason = "it is not JSON"
        except RecursionError:
            reason = "it is nested too deep"
        raise HttpError(f"{display(self.url)} cannot be used: {reason}", self.status)


class Fetcher:
    """Sends requests to URLs from servers, but not into the user's network.

    If the environment defines a proxy (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`), the proxy resolves
    host names and decides which hosts are allowed. Even then, IP addresses in URLs are checked
    here. Requests to this machine do not use the proxy. TLS trusts the system's certificates, or
    those in `SSL_CERT_FILE` and `SSL_CERT_DIR`.

    Args:
        near: The URL of the server that the user chose. If its host name means this machine,
            requests to this machine are allowed. If all its IP addresses are private, requests to
            private addresses are allowed. This trusts the host name's owner, so a program that acts
            for other users passes "", which allows only public addresses.
        max_bytes: The largest response body that is accepted, decompressed.
        resolve: Returns a host's IP addresses; replaceable for tests.
    """

    def __init__(
        self,
        near: str = "",
        *,
        max_bytes: int = MAX_BODY_BYTES,
        resolve: Resolver | None = None,
    ) -> None:
        self._near = _host_of(near)
        self._max_bytes = max_bytes
        self._resolve = resolve or _look_up
        self._proxies = getproxies()
        self._nearness: addresses.Kind | None = None

    async def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, may_move: bool = False
    ) -> FetchedResponse:
        """Send a GET request.

        Args:
            url: The URL.
            headers: Headers, which also the target of a redirect gets.
            may_move: Whether to follow one redirect to the same origin.

        Raises:
            AuthError: The URL is not allowed: it is not https, or its address is not public.
            Unreachable: DNS, the connection, TLS or the proxy failed.
            RequestTimeout: The response was not complete within `TIMEOUT`.
            RedirectRefused: The response is a redirect.
            MessageTooLarge: The response body is larger than `max_bytes`.
            StreamEnded: The connection was closed before the end of the response.
            RemoteProtocolError: The response is not valid HTTP.
        """
        moves = _REDIRECTS if may_move else ()
        return await self._request("GET", url, headers or {}, None, moves)

    async def post(
        self,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        json: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> FetchedResponse:
        """Send a POST request with a form or a JSON document. It is not repeated on failure.

        A redirect by 307 or 308 to the same origin is followed once.

        Raises:
            InterlockError: The request failed; see `get`.
        """
        if form is not None:
            body, media_type = urlencode(form).encode(), "application/x-www-form-urlencoded"
        else:
            body, media_type = msgspec.json.encode(json), "application/json"
        return await self._request(
            "POST", url, {**(headers or {}), "Content-Type": media_type}, body, _KEEPING
        )

    # One request

    async def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        moves: Collection[int],
    ) -> FetchedResponse:
        target = parse_allowed(url)
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._send(method, target, headers, body, moves)
        except InterlockError:
            raise
        except TimeoutError:
            raise RequestTimeout(f"{display(url)} has not answered within {TIMEOUT:g} s") from None
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            raise _typed(display(url), error) from None

    async def _send(
        self,
        method: str,
        target: URL,
        headers: Mapping[str, str],
        body: bytes | None,
        moves: Collection[int],
    ) -> FetchedResponse:
        """Send a request, and once more if the status of a redirect is in `moves`."""
        proxy = self._proxy(target)
        pinned = await self._checked(target, proxy)
        connector = aiohttp.TCPConnector(
            resolver=_Pinned(pinned),
            ssl=_tls(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
            force_close=True,
        )
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=_NO_TIMEOUT,
                auto_decompress=False,
                headers=_HEADERS,
            ) as session,
            session.request(
                method, target, headers=headers, data=body, proxy=proxy, allow_redirects=False
            ) as response,
        ):
            name = display(str(target))
            moved = _moved(target, response) if response.status in moves else None
            if moved is None:
                if response.status in _REDIRECTS:
                    where = _redirect_target(target, response)
                    text = f"{name} redirects {where}, which is not followed"
                    raise RedirectRefused(text, response.status)
                content = await _body(response, name, self._max_bytes)
                return FetchedResponse(response.status, response.headers, content, str(target))
        return await self._send(method, moved, headers, body, ())

    # Addresses

    def _proxy(self, target: URL) -> str | None:
        host = target.raw_host or ""
        proxy = self._proxies.get(target.scheme) or self._proxies.get("all")
        if (
            not proxy
            or addresses.written_kind(host) == "loopback"
            or proxy_bypass(target.authority)
        ):
            return None
        if "://" not in proxy:
            proxy = f"http://{proxy}"
        if URL(proxy).scheme not in ("http", "https"):
            raise AuthError(
                f"the proxy for {host} uses {URL(proxy).scheme!r}, which is not supported: set "
                "HTTPS_PROXY to a URL of http or https, or name the host in NO_PROXY"
            )
        return proxy

    async def _checked(self, target: URL, proxy: str | None) -> list[str]:
        """Return the addresses to connect to: the proxy's, or all of the host's after a check."""
        host = target.raw_host or ""
        written = addresses.literal(host)
        if proxy is None or written is not None:
            found = [written] if written else await self._addresses(host, target.port or 443)
            for address in found:
                await self._check(target, addresses.kind(address))
            if proxy is None:
                return found
        if target.scheme != "https":
            raise _refused(target, "it must be https")
        proxy_url = URL(proxy)
        return await self._addresses(proxy_url.raw_host or "", proxy_url.port or 80)

    async def _check(self, target: URL, kind: addresses.Kind) -> None:
        # Do not show the IP address: the server that named this host may be unable to look up names
        # in the user's network, and could learn the address from the message.
        if kind == "special":
            raise _refused(target, "its IP address is in a reserved range, which no server uses")
        if kind != "public" and kind != await self._near_kind():
            where = "on this machine" if kind == "loopback" else "in a private network"
            raise _refused(target, f"it is {where}, but the server that refers to it is not")
        if target.scheme != "https" and kind != "loopback":
            raise _refused(target, "it must be https")

    async def _near_kind(self) -> addresses.Kind:
        """Return the kind of network in which the user's server is.

        The host name is looked up only once, because a later lookup could return another address.
        """
        if self._nearness is None:
            self._nearness = await self._find_near_kind()
        return self._nearness

    async def _find_near_kind(self) -> addresses.Kind:
        if addresses.written_kind(self._near) == "loopback":
            return "loopback"
        found = await self._addresses(self._near, 443) if self._near else []
        # A public name that resolves to this machine does not count, as the user did not mean it.
        is_private = {addresses.kind(address) for address in found} == {"private"}
        return "private" if is_private else "public"

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError):  # UnicodeError: a label of the name is empty or too long
            found = []
        if not found:
            raise Unreachable(f"{clip(host)} cannot be reached: its name has no address")
        return found


class _Pinned(AbstractResolver):
    """A resolver that returns the same checked IP addresses for every host name."""

    def __init__(self, found: list[str]) -> None:
        self._found = found

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - aiohttp's signature
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in self._found
        ]

    async def close(self) -> None:
        pass


async def _look_up(host: str, port: int) -> list[str]:
    found = await in_thread(partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    return [str(address[0]) for *_, address in found]


@lru_cache(4)
def _tls(cafile: str | None, capath: str | None) -> ssl.SSLContext:  # noqa: ARG001 - the cache's keys
    # aiohttp's default context would ignore later changes of SSL_CERT_FILE and SSL_CERT_DIR.
    # Reading all of a system's certificates takes tens of milliseconds, so the context is cached.
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


# URLs


def _parse(url: str) -> URL:
    """Parse a URL with the HTTP client's own parser; raise ValueError if it is not valid."""
    try:
        return URL(url)
    except IndexError as error:  # yarl raises it for "http://[::1]@", which has no host
        raise ValueError(str(error)) from None


def check_url(url: str, what: str) -> None:
    """Check that a URL is allowed. This does not look up its host name.

    Args:
        url: The URL, exactly as in the document.
        what: The purpose and the source of the URL, for the error message.

    Raises:
        AuthError: The URL is not allowed; the text names `what`.
    """
    try:
        parse_allowed(url)
    except AuthError as error:
        raise AuthError(f"{what} cannot be used: {error}") from None


def parse_allowed(url: str) -> URL:
    """Parse a URL, and check that all URL parsers interpret it in the same way.

    Raises:
        AuthError: The URL is not https or http, contains a user or unusual characters, or is too
            long.
    """
    try:
        parsed = _parse(url)
        host = parsed.raw_host or ""
        addresses.literal(host)
    except ValueError:
        raise AuthError(f"{display(url)} is refused: its host is missing or not valid") from None
    if parsed.scheme not in ("https", "http") or not parsed.port or not _HOST.fullmatch(host):
        raise _refused(parsed, "it is not a valid https URL")
    if parsed.user is not None or parsed.password is not None:
        raise _refused(parsed, "it contains a user name")
    if len(url) > MAX_URL or not _VISIBLE.fullmatch(url):
        raise _refused(parsed, f"it has unusual characters, or more than {MAX_URL}")
    return parsed


def _refused(target: URL, reason: str) -> AuthError:
    return AuthError(f"{display(str(target))} is refused: {reason}")


def _host_of(url: str) -> str:
    try:
        return _parse(url).raw_host or ""
    except ValueError:
        return ""


def _moved(target: URL, response: aiohttp.ClientResponse) -> URL | None:
    """Return the target of a redirect that keeps the origin; None for others.

    Frameworks redirect so to a URL with or without a slash at its end:
    https://github.com/django-oauth/django-oauth-toolkit/issues/1851
    """
    try:
        found = parse_allowed(urljoin(str(target), response.headers.get("Location", "")))
        return found if found.origin() == target.origin() else None
    except (AuthError, ValueError):
        return None


def _redirect_target(target: URL, response: aiohttp.ClientResponse) -> str:
    """Return the origin of a redirect's target, because the rest of the URL may be secret."""
    try:
        location = _parse(urljoin(str(target), response.headers.get("Location", "")))
        return f"to {clip(str(location.origin()))}"
    except ValueError:
        return "to an invalid URL"


# Responses


async def _body(response: aiohttp.ClientResponse, name: str, max_bytes: int) -> bytes:
    inflater = Inflater(response.headers.get("Content-Encoding", ""), max_bytes, name)
    pieces: list[bytes] = []
    while chunk := await response.content.readany():
        pieces.extend(inflater.feed(chunk))
    inflater.finish()
    return b"".join(pieces)


def _typed(name: str, error: Exception) -> InterlockError:
    match error:
        case aiohttp.ClientHttpProxyError():
            return Unreachable(f"{name} cannot be reached: the proxy answers {error.status}")
        case aiohttp.ClientProxyConnectionError():
            return Unreachable(f"{name} cannot be reached: the proxy fails, {_cause(error)}")
        case aiohttp.ClientConnectorError():
            return Unreachable(f"{name} cannot be reached: {_cause(error)}")
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return RemoteProtocolError(f"{name} answers with something that is not HTTP")
        case _:
            return StreamEnded(f"{name} closed the connection: {type(error).__name__}")


def _cause(error: aiohttp.ClientConnectorError) -> str:
    match inner := error.os_error:
        case ssl.SSLCertVerificationError():
            hint = "; if it comes from a private CA, set SSL_CERT_FILE"
            hint = hint if inner.verify_code in _UNKNOWN_ISSUER else ""
            return f"its certificate is not valid: {inner.verify_message}{hint}"
        case ssl.SSLError():
            return f"no TLS: {inner.reason or type(inner).__name__}"
        case _:
            return os.strerror(inner.errno) if inner.errno else "no connection"
