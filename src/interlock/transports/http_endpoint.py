"""One URL of a server: requests to it with its headers, and errors that say what went wrong.

Rules:

1. Credentials go to this URL's origin only. A redirect inside it is followed once, for the
   methods that keep theirs (307, 308); any other is refused.
2. Bodies and events are bounded as they are unpacked, not as they arrive.
3. An error names the server by host and path. Query, user and headers are not in it.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from urllib.parse import urljoin, urlsplit

import aiohttp

from interlock import urls
from interlock.errors import (
    ConfigError,
    ConnectionClosed,
    InterlockError,
    MessageTooLarge,
    OutOfMemory,
    RedirectRefused,
    StreamEnded,
    Unreachable,
)
from interlock.protocol.content_encoding import SLICE, Inflater
from interlock.protocol.event_stream import ServerSentEvent, SseParser
from interlock.transports import Authorization
from interlock.transports.http_errors import refusal, token_of
from interlock.transports.http_pool import HttpPool

Request = Callable[..., Awaitable[aiohttp.ClientResponse]]

JSON = "application/json"
EVENTS = "text/event-stream"

MAX_ERROR_BODY = 64 * 1024
ERROR_BODY_TIMEOUT = 0.5  # seconds; an error is told without it then
_FOLLOWED = (307, 308)

# What a server is told and does not take would fill us with connections in time; our answers to
# one that asks without end would do so at once.
TAKE_TIMEOUT = 30.0  # seconds
MAX_UNTAKEN = 1_000  # answers

# What aiohttp raises when a connection is not made, breaks, or is not HTTP; and what there is no
# memory for.
FAILURES = (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError, EOFError, MemoryError)

_TOO_LONG = ("Got more than", "Too many headers")  # in what aiohttp says of headers

_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# These say what a message is; a user's own would contradict the message.
_OURS = frozenset(
    (
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "transfer-encoding",
    )
)


class Endpoint:
    """A URL to which messages are posted, and from which streams are read.

    Args:
        url: http or https, without user and fragment.
        pool: Its connections.
        headers: For every request, such as an API key.
        authorization: Where the bearer token comes from.
        max_bytes: Longest message accepted.

    Raises:
        ConfigError: A URL or header that cannot be used.
    """

    def __init__(
        self,
        url: str,
        pool: HttpPool,
        headers: Mapping[str, str] | None,
        authorization: Authorization | None,
        max_bytes: int,
    ) -> None:
        self.url = url
        self.shown = _check_url(url)
        self.max_bytes = max_bytes
        self._pool = pool
        self._authorization = authorization
        self._proxy = pool.proxy(url)
        self._secrets = tuple((headers or {}).values())  # some of them
        self._headers = {
            "User-Agent": "interlock",
            "Accept-Encoding": "gzip, deflate",
            **_check_headers(headers or {}),
        }

    def sibling(self, url: str) -> Endpoint:
        """Make an endpoint of another URL of this origin, with the same credentials."""
        other = object.__new__(Endpoint)
        vars(other).update(vars(self))
        other.url, other.shown = url, _check_url(url)
        return other

    # Requests

    @asynccontextmanager
    async def request(
        self, method: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request; inside, read its answer. What fails in there raises our errors.

        Raises:
            Unreachable: It was not sent.
            StreamEnded: The answer was cut off.
            RedirectRefused: To elsewhere, or a second one.
        """
        try:
            response = await self.send(method, headers, body)
            try:
                yield response
            finally:
                response.release()
        except InterlockError:  # some are an OSError, too
            raise
        except FAILURES as error:
            raise self.failure(error) from None

    async def send(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        at_once: bool = False,
    ) -> aiohttp.ClientResponse:
        """Send a request; the answer's headers are there, and who called has to release it.

        Args:
            method: HTTP method.
            headers: Besides those of the endpoint.
            body: What is sent.
            at_once: Do not wait for a connection when many requests are under way.

        Raises:
            RedirectRefused: To elsewhere, or a second one.
            FAILURES: What `failure` makes an error of ours.
        """
        sent = {**self._headers, **headers}
        at_once = at_once or method == "GET"
        session = self._pool.streams if at_once else self._pool.session
        request: Request = partial(
            session.request, method, data=body, proxy=self._proxy, allow_redirects=False
        )
        if self._authorization is not None:
            request = partial(_send_authorized, self._authorization, request, method)
        response = await request(self.url, headers=sent)
        if not 300 <= response.status < 400:
            return response
        response.release()
        target = self._target(response)
        response = await request(target, headers=sent)
        if 300 <= response.status < 400:
            response.release()
            raise RedirectRefused(f"{self.shown} redirects once more", response.status)
        if response.status < 300 and method == "POST":
            # The next request goes there at once. Where a stream was sent says nothing of that.
            self.url = target
        return response

    async def next_token(self) -> str | None:
        """Give the token that the next request will have; None where there are no tokens."""
        if self._authorization is None:
            return None
        return self._authorization.token or await self._authorization.valid_token()

    def failure(self, error: BaseException) -> InterlockError:
        """Say what one of `FAILURES` means: whether the request was sent at all."""
        # aiohttp keeps the error, which would keep what was read so far.
        error.__traceback__ = None
        if _is_of_memory(error):
            return OutOfMemory(f"{self.shown}: there is no memory for a message to or from it")
        if isinstance(error, aiohttp.ClientProxyConnectionError):
            return Unreachable(f"{self.shown} cannot be reached by its proxy: {_cause(error)}")
        if isinstance(error, aiohttp.ClientConnectorError):
            return Unreachable(f"{self.shown} cannot be reached: {_cause(error)}")
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return Unreachable(f"{self.shown} cannot be reached: no answer to connecting")
        if isinstance(error, aiohttp.ClientHttpProxyError):
            hint = "; check user and password in HTTPS_PROXY" if error.status == 407 else ""
            return Unreachable(f"the proxy refused {self.shown}: {error.status}{hint}")
        if isinstance(error, aiohttp.InvalidURL):
            return Unreachable(f"{self.shown} cannot be reached: its host is no name or address")
        if "closing transport" in str(error.__cause__):  # found before the first byte was written
            return Unreachable(f"{self.shown} closed the connection before the request was sent")
        return StreamEnded(f"{self.shown}: {_cut(error)}")

    def _target(self, response: aiohttp.ClientResponse) -> str:
        status = response.status
        location = response.headers.get("Location", "")
        if not location:
            raise RedirectRefused(f"{self.shown} answered {status} without saying where to", status)
        try:
            target = urljoin(self.url, location)
            is_elsewhere = urls.origin(target) != urls.origin(self.url)
            has_user = "@" in urlsplit(target).netloc
        except ValueError:
            raise RedirectRefused(f"{self.shown} redirects to what is no URL", status) from None
        if has_user:  # which would take the place of our credentials
            raise RedirectRefused(f"{self.shown} redirects to a URL with a user in it", status)
        if is_elsewhere:
            is_safe = target.startswith("https:") or self.url.startswith("http:")
            raise RedirectRefused(
                f"{self.shown} redirects to {urls.display(target)}, where credentials do not go"
                + (": use that URL if it is meant" if is_safe else ", without TLS"),
                status,
            )
        if status not in _FOLLOWED:
            raise RedirectRefused(
                f"{self.shown} redirects with {status}, which does not keep the request: "
                f"use {urls.display(target)} if it is meant",
                status,
            )
        return target

    # Answers

    async def body(self, response: aiohttp.ClientResponse, limit: int = 0) -> bytes:
        """Read a whole body, unpacked.

        Raises:
            MessageTooLarge: Over `limit` bytes; `max_bytes` when 0.
        """
        limit = limit or self.max_bytes
        length = response.content_length
        if length is not None and length > limit:
            raise self._too_large(limit)
        if length is not None and "Content-Encoding" not in response.headers:
            return await response.read()
        inflater = self._inflater(response, limit)
        pieces: list[bytes] = []
        while chunk := await response.content.readany():
            pieces += inflater.feed(chunk)
        inflater.finish()
        return b"".join(pieces)

    async def events(
        self, response: aiohttp.ClientResponse, parser: SseParser
    ) -> AsyncGenerator[ServerSentEvent, None]:
        """Read a stream of events until it ends. Who leaves it before has to close it."""
        inflater = self._inflater(response, None)
        while chunk := await response.content.readany():
            for piece in inflater.feed(chunk):
                for event in parser.feed(piece):
                    yield event
                if len(piece) >= SLICE:  # a flood of tiny lines must not hold up everybody
                    await asyncio.sleep(0)
        inflater.finish()

    def _inflater(self, response: aiohttp.ClientResponse, limit: int | None) -> Inflater:
        return Inflater(response.headers.get("Content-Encoding", ""), limit, self.shown)

    def _too_large(self, limit: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"{self.shown} sent a message over the limit ({limit / 2**20:g} MiB)"
        )

    async def refusal(self, response: aiohttp.ClientResponse) -> InterlockError:
        """Say why an answer is none, by its status, headers and what stands in its body."""
        body = b""
        with suppress(InterlockError, *FAILURES):  # the status says enough
            async with asyncio.timeout(ERROR_BODY_TIMEOUT):
                body = await self.body(response, MAX_ERROR_BODY)
        return refusal(self.shown, response, body, (token_of(response), *self._secrets))


async def _send_authorized(
    authorization: Authorization,
    request: Request,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
) -> aiohttp.ClientResponse:
    """Send a request with the token, and once more if the server demands a nonce of its own."""
    if not authorization.token:
        await authorization.valid_token()
    response = await request(url, headers={**headers, **authorization.headers(method, url)})
    if authorization.needs_resend(response.status, response.headers):
        response.release()
        response = await request(url, headers={**headers, **authorization.headers(method, url)})
        authorization.needs_resend(response.status, response.headers)
    return response


class PendingReplies:
    """What one server is told without asking it anything, until it has taken it."""

    def __init__(self) -> None:
        self._answers: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether one more answer would be too many: the connection had better end."""
        return len(self._answers) >= MAX_UNTAKEN

    def overflow(self, shown: str) -> ConnectionClosed:
        """Say why the connection of the server `shown` ends when this is full."""
        return ConnectionClosed(
            f"{shown} does not take the answers that it asks for: {MAX_UNTAKEN:,} wait"
        )

    def add(self, task: asyncio.Task[None], *, is_answer: bool) -> None:
        """Watch over a task that sends, and end it when it takes too long."""
        timer = task.get_loop().call_later(TAKE_TIMEOUT, task.cancel)
        task.add_done_callback(lambda _: timer.cancel())
        if is_answer:
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)


def _check_url(url: str) -> str:
    try:
        parts = urls.split(url)
    except ValueError:
        parts = None
    if parts is None or parts.scheme not in ("http", "https"):
        needs = "it needs http:// or https://, a host and, if any, a valid port"
        raise ConfigError(f"invalid server URL {urls.display(url)}; {needs}")
    host = parts.hostname
    if "@" in parts.netloc:
        raise ConfigError(f"the URL of {host} has a user in it; give credentials as headers")
    if parts.fragment:
        raise ConfigError(f"the URL of {host} has a fragment (#…); leave it out, as it is not sent")
    return urls.display(url)


def _check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in headers.items():
        if not urls.HTTP_TOKEN.fullmatch(name):
            raise ConfigError(f"{name!r} is not a valid name of an HTTP header")
        if not _HEADER_VALUE.fullmatch(value):
            raise ConfigError(f"header {name} has a character that no header can carry")
        if name.lower() in _OURS or name.lower().startswith("mcp-param-"):
            raise ConfigError(f"header {name} is set by the client itself: leave it out")
    return headers


def _cause(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        has_none = isinstance(error.os_error, socket.gaierror)
        return "its name has no address" if has_none else str(error.os_error.strerror)
    inner = getattr(error, "certificate_error", None) or error.os_error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {inner.verify_message}"
    if isinstance(inner, ssl.SSLError):
        return f"no TLS: {inner.reason or type(inner).__name__}"
    if inner.errno:
        return os.strerror(inner.errno)  # its own text repeats the address
    return inner.strerror or type(inner).__name__


def _is_of_memory(error: BaseException | None) -> bool:
    """Whether it failed for want of memory: here, or where a connection's bytes come in."""
    while error is not None:
        # What ends a connection, aiohttp tells only in the text of what it makes of it.
        if isinstance(error, MemoryError) or str(error).endswith("MemoryError()"):
            return True
        error = error.__cause__ or error.__context__
    return False


def _cut(error: BaseException) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "cut its answer off"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.http.HttpProcessingError):
        is_too_long = any(words in str(error) for words in _TOO_LONG)
        return "its headers are too long" if is_too_long else "its answer is not HTTP"
    if isinstance(error, OSError) and error.strerror:
        return f"the connection broke: {error.strerror}"
    return f"the connection broke: {type(error).__name__}"
