"""The one way to addresses that somebody else named: metadata, registration, tokens.

Rules:

1. Addresses of https only, and of http where they are on this machine.
2. All addresses of a host are checked, and the connection goes to one of those, without asking
   for the name again. TLS is verified for the name.
3. Only public addresses are asked, unless the server that the user chose is nearer itself: then
   those as near as it are asked, too.
4. Redirects are not followed; there are no cookies and no `.netrc`; the body and the time are
   bounded.
5. An error names the host and the cause, in one line, without query and credentials.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
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
from interlock.quoting import clip
from interlock.redaction import Redacted
from interlock.types import JsonObject

TIMEOUT = 10.0  # seconds for one request: name, connection, TLS, answer
MAX_BODY_BYTES = 1_048_576  # unpacked
MAX_URL = 8_192  # characters

Resolver = Callable[[str, int], Awaitable[list[str]]]
_T = TypeVar("_T")
_UNKNOWN_ISSUER = (2, 18, 19, 20, 21)  # of OpenSSL
_REDIRECTS = (301, 302, 303, 307, 308)
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)
_HEADERS = {
    "User-Agent": "interlock",
    "Accept": "application/json",  # some token endpoints answer with a form else
    "Accept-Encoding": "gzip, deflate",
}
# Two readers of a URL may differ over anything else: characters of one line that every URL may
# have, and a host that is a name or an address.
_VISIBLE = re.compile(r"[!#-;=?-\[\]_a-z~]+")
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")


class Reply(Redacted, frozen=True):
    """An answer, with any status but a redirect.

    Attributes:
        status: HTTP status.
        headers: Their names in any case.
        body: Unpacked.
        url: What was asked.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("status", self.status), ("url", shown(self.url))]

    def json(self, type: type[_T] = JsonObject) -> _T:  # type: ignore[assignment]  # the default T
        """Decode the body.

        Args:
            type: What it must be: a struct, or a dict.

        Raises:
            HttpError: It is something else, or no JSON; its content is not shown.
        """
        try:
            decoded = msgspec.json.decode(self.body, type=type)
            check_bounds(self.body)
            return decoded
        except (msgspec.ValidationError, ParseError) as error:
            reason = str(error)
        except (msgspec.DecodeError, UnicodeDecodeError):
            reason = "it is not JSON"
        except RecursionError:
            reason = "it is nested too deep"
        raise HttpError(f"{shown(self.url)} cannot be used: {reason}", self.status)


class Fetcher:
    """Asks the addresses that servers name, unless they lead where only we can go.

    With a proxy in the environment (`HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`), the proxy looks
    names up and decides where they may lead; addresses that are written as such are checked
    before it is asked. This machine is never asked by way of a proxy. Certificates are those of
    the system, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`.

    Args:
        near: URL of the server that the user chose. When its host is this machine by its name,
            this machine is asked, too; when all its addresses are private, private ones are.
            Who chose it thereby trusts whoever gives out that name: programs that act for
            others pass "", and public addresses only are asked.
        resolve: Returns the addresses of a host; for tests.
    """

    def __init__(self, near: str = "", *, resolve: Resolver | None = None) -> None:
        self._near = _host_of(near)
        self._resolve = resolve or _look_up
        self._proxies = getproxies()
        self._nearness: addresses.Kind | None = None

    async def get(self, url: str, headers: Mapping[str, str] | None = None) -> Reply:
        """Ask for a document.

        Raises:
            AuthError: The URL is not asked: no https, or not a public address.
            Unreachable: No such name, no connection, no TLS, or no proxy.
            RequestTimeout: Not answered within `TIMEOUT`.
            RedirectRefused: The answer is elsewhere.
            MessageTooLarge: The body is over `MAX_BODY_BYTES`.
            StreamEnded: The answer was cut off.
            RemoteProtocolError: The answer is not HTTP.
        """
        return await self._request("GET", url, headers or {}, None)

    async def post(
        self,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        json: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a form, or a JSON document. It is sent once.

        Raises:
            InterlockError: As in `get`.
        """
        if form is not None:
            body, media_type = urlencode(form).encode(), "application/x-www-form-urlencoded"
        else:
            body, media_type = msgspec.json.encode(json), "application/json"
        return await self._request(
            "POST", url, {**(headers or {}), "Content-Type": media_type}, body
        )

    # One request

    async def _request(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
        target = _parsed(url)
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._send(method, target, headers, body)
        except InterlockError:
            raise
        except TimeoutError:
            raise RequestTimeout(f"{shown(url)} has not answered within {TIMEOUT:g} s") from None
        except (aiohttp.ClientError, HttpProcessingError, OSError) as error:
            raise _typed(shown(url), error) from None

    async def _send(
        self, method: str, target: URL, headers: Mapping[str, str], body: bytes | None
    ) -> Reply:
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
            name = shown(str(target))
            if response.status in _REDIRECTS:
                raise RedirectRefused(
                    f"{name} redirects {_whither(target, response)}, and is not followed",
                    response.status,
                )
            content = await _body(response, name)
            return Reply(response.status, response.headers, content, str(target))

    # Where it goes

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
                f"the proxy for {host} is of kind {URL(proxy).scheme!r}; http and https can be "
                "used: change HTTPS_PROXY, or name the host in NO_PROXY"
            )
        return proxy

    async def _checked(self, target: URL, proxy: str | None) -> list[str]:
        """Return the addresses to connect to: the host's, all checked, or the proxy's."""
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
        way = URL(proxy)
        return await self._addresses(way.raw_host or "", way.port or 80)

    async def _check(self, target: URL, kind: addresses.Kind) -> None:
        # The address itself is not told: who named the host may not be allowed to look it up.
        if kind == "special":
            raise _refused(target, "no server has an address like that")
        if kind != "public" and kind != await self._near_kind():
            where = "on this machine" if kind == "loopback" else "in a private network"
            raise _refused(target, f"it is {where}, where the server that refers to it is not")
        if target.scheme != "https" and kind != "loopback":
            raise _refused(target, "it must be https")

    async def _near_kind(self) -> addresses.Kind:
        """Say where the user's server is. The first answer holds: names can change their mind."""
        if self._nearness is None:
            self._nearness = await self._find_near_kind()
        return self._nearness

    async def _find_near_kind(self) -> addresses.Kind:
        if addresses.written_kind(self._near) == "loopback":
            return "loopback"
        found = await self._addresses(self._near, 443) if self._near else []
        # A name of others that leads to this machine does not make it what the user chose.
        is_private = {addresses.kind(address) for address in found} == {"private"}
        return "private" if is_private else "public"

    async def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = await self._resolve(host, port)
        except (OSError, UnicodeError):  # UnicodeError: a label that is empty or too long
            found = []
        if not found:
            raise Unreachable(f"{clip(host)} cannot be reached: its name has no address")
        return found


class _Pinned(AbstractResolver):
    """Knows the addresses that were checked, and no others."""

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
    # Not aiohttp's own context, which is as old as the process. Reading all certificates of a
    # system takes tens of milliseconds, so it is not done for each server.
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


# URLs


def _read(url: str) -> URL:
    """Read a URL; what is none raises ValueError."""
    try:
        return URL(url)
    except IndexError as error:  # of yarl, for "http://[::1]@", which has no host
        raise ValueError(str(error)) from None


def shown(url: str) -> str:
    """Write a URL for people: without user, query and fragment, and not too long."""
    try:
        return clip(str(_read(url).with_user(None).with_query(None).with_fragment(None)))
    except ValueError:  # where a user ends, readers may differ
        return "a URL that cannot be read" if "@" in url else repr(clip(re.split("[?#]", url)[0]))


def check_url(url: str, what: str) -> None:
    """Make certain that a URL can be asked, as far as that can be told from how it is written.

    Args:
        url: As somebody wrote it.
        what: What it is, and whose.

    Raises:
        AuthError: It cannot; names `what`.
    """
    try:
        _parsed(url)
    except AuthError as error:
        raise AuthError(f"{what} cannot be used: {error}") from None


def _parsed(url: str) -> URL:
    try:
        parsed = _read(url)
        host = parsed.raw_host or ""
        addresses.literal(host)
    except ValueError:
        raise AuthError(f"{shown(url)} is refused: it has no host, or an odd one") from None
    if parsed.scheme not in ("https", "http") or not parsed.port or not _HOST.fullmatch(host):
        raise _refused(parsed, "it is no https URL")
    if parsed.user is not None or parsed.password is not None:
        raise _refused(parsed, "it has a user in it")
    if len(url) > MAX_URL or not _VISIBLE.fullmatch(url):
        raise _refused(parsed, f"it is over {MAX_URL} characters, or has odd ones")
    return parsed


def _refused(target: URL, reason: str) -> AuthError:
    return AuthError(f"{shown(str(target))} is refused: {reason}")


def _host_of(url: str) -> str:
    try:
        return _read(url).raw_host or ""
    except ValueError:
        return ""


def _whither(target: URL, response: aiohttp.ClientResponse) -> str:
    """Say where a redirect leads, by its origin: the rest may be a secret."""
    try:
        leads = _read(urljoin(str(target), response.headers.get("Location", "")))
        return f"to {clip(str(leads.origin()))}"
    except ValueError:
        return "nowhere"


# Answers


async def _body(response: aiohttp.ClientResponse, name: str) -> bytes:
    inflater = Inflater(response.headers.get("Content-Encoding", ""), MAX_BODY_BYTES, name)
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
            return StreamEnded(f"{name} broke the connection off: {type(error).__name__}")


def _cause(error: aiohttp.ClientConnectorError) -> str:
    match inner := error.os_error:
        case ssl.SSLCertVerificationError():
            hint = "; name a CA of your own in SSL_CERT_FILE"
            hint = hint if inner.verify_code in _UNKNOWN_ISSUER else ""
            return f"its certificate is not good: {inner.verify_message}{hint}"
        case ssl.SSLError():
            return f"no TLS: {inner.reason or type(inner).__name__}"
        case _:
            return os.strerror(inner.errno) if inner.errno else "no connection"
