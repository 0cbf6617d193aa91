"""One URL of a server: requests with credentials, and HTTP failures as interlock's errors.

Rules:

1. Credentials are sent to this URL's origin only. One redirect within the origin is followed if it
   keeps the method and body (307, 308); any other redirect is refused.
2. Limits on bodies and events apply to the decompressed size.
3. Errors name the server by host and path, without user, query and headers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import warnings
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
)
from contextlib import asynccontextmanager, suppress
from functools import partial
from urllib.parse import urljoin, urlsplit

import aiohttp

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
from interlock.text import urls
from interlock.text.redaction import NO_VALUES
from interlock.transports import Authorization
from interlock.transports.http_errors import refusal, sent_token
from interlock.transports.http_headers import check_headers, merged
from interlock.transports.http_pool import HttpPool, deadline
from interlock.transports.trace import Trace

LARGEST_PLAIN_BODY = 2**20  # bytes; aiohttp warns of larger ones
Request = Callable[..., Awaitable[aiohttp.ClientResponse]]

EVENTS = "text/event-stream"

MAX_ERROR_BODY = 64 * 1024
ERROR_BODY_TIMEOUT = 0.5  # seconds; after that the error is reported without the body
_FOLLOWED = (307, 308)

# Limit the open connections to a server that does not accept our notifications and responses.
REPLY_TIMEOUT = 30.0  # seconds
MAX_PENDING_REPLIES = 1_000  # responses

# The errors that aiohttp raises if a connection fails or breaks, is not HTTP, or exhausts memory.
FAILURES = (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError, EOFError, MemoryError)

_TOO_LONG = ("Got more than", "Too many headers")  # beginnings of aiohttp's errors about headers


class _LargeBody(aiohttp.BytesPayload):
    """A body for which aiohttp would advise to read a file: this one is in memory already."""

    def __init__(self, body: bytes) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            super().__init__(body)


class HttpEndpoint:
    """A URL to which messages are posted, and from which streams are read.

    Args:
        url: An http or https URL, without user and fragment.
        pool: The pool of connections.
        headers: Headers for every request, such as an API key.
        authorization: The source of bearer tokens; None to send no token.
        max_bytes: The size of the largest accepted message.
        trace: Records requests and answers; None to record nothing.
        silence: The longest wait for the next bytes of a response, in seconds; None for no limit.

    Raises:
        ConfigError: The URL or a header is invalid.
    """

    def __init__(
        self,
        url: str,
        pool: HttpPool,
        headers: Mapping[str, str] | None,
        authorization: Authorization | None,
        max_bytes: int,
        trace: Trace | None = None,
        *,
        silence: float | None = None,
    ) -> None:
        self._trace = trace
        self._timeout = deadline(silence)
        self.url = url
        self.shown = _check_url(url)
        self.max_bytes = max_bytes
        self._pool = pool
        self._authorization = authorization
        self._proxy = pool.proxy(url)
        self._secrets = tuple((headers or {}).values())  # some of the values are secrets
        self._headers = {
            "User-Agent": "interlock",
            "Accept-Encoding": "gzip, deflate",
            **check_headers(headers or {}),
        }

    def sibling(self, url: str) -> HttpEndpoint:
        """Return an endpoint for another URL on this origin, with the same credentials."""
        other = object.__new__(HttpEndpoint)
        vars(other).update(vars(self))
        other.url, other.shown = url, _check_url(url)
        return other

    # Requests

    @asynccontextmanager
    async def request(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        own: Mapping[str, str] = NO_VALUES,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield the response; `FAILURES` in the block become our errors.

        Raises:
            Unreachable: The request was not sent.
            StreamEnded: The response was cut off.
            RedirectRefused: The redirect leads to another origin, or is the second one.
        """
        try:
            response = await self.send(method, headers, body, own=own)
            try:
                yield response
            finally:
                response.release()
        except InterlockError:  # first, because some InterlockErrors are OSErrors too
            raise
        except FAILURES as error:
            raise self.failure(error) from None

    async def send(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        own: Mapping[str, str] = NO_VALUES,
        at_once: bool = False,
    ) -> aiohttp.ClientResponse:
        """Send a request and return its response, which the caller must release.

        Args:
            method: The HTTP method.
            headers: Headers in addition to the endpoint's headers.
            body: The request's body.
            own: Headers of this request only, which replace the endpoint's headers.
            at_once: Whether to send the request at once, even if all pooled connections are in use.

        Raises:
            RedirectRefused: The redirect leads to another origin, or is the second one.
            FAILURES: The request failed; `failure` converts these errors into our errors.
        """
        sent = {**self._headers, **headers}
        authorization = self._authorization
        if own:
            sent = merged(sent, own)
            if any(name.lower() == "authorization" for name in own):
                authorization = None
        at_once = at_once or method == "GET"
        session = self._pool.streams if at_once else self._pool.session
        request: Request = partial(
            session.request,
            method,
            data=body if body is None or len(body) <= LARGEST_PLAIN_BODY else _LargeBody(body),
            proxy=self._proxy,
            allow_redirects=False,
            timeout=self._timeout,
        )
        if authorization is not None:
            request = partial(_send_authorized, authorization, request, method)
        response = await request(self.url, headers=sent)
        if self._trace is not None:
            self._trace.noted("http", _exchange(response, (*self._headers, *own)))
        if not 300 <= response.status < 400:
            return response
        response.release()
        return await self._redirected(request, self._target(response), sent, method)

    async def _redirected(
        self, request: Request, target: str, sent: Mapping[str, str], method: str
    ) -> aiohttp.ClientResponse:
        response = await request(target, headers=sent)
        if 300 <= response.status < 400:
            response.release()
            raise RedirectRefused(f"{self.shown} redirects a second time", response.status)
        if response.status < 300 and method == "POST":
            # Later requests use the new URL. A redirected GET does not imply this for POSTs.
            self.url = target
        return response

    async def next_token(self) -> str | None:
        """Return the token for the next request; None without authorization."""
        if self._authorization is None:
            return None
        return self._authorization.token or await self._authorization.valid_token()

    def failure(self, error: BaseException) -> InterlockError:
        """Convert an error in `FAILURES`; the result's class shows whether the request was sent."""
        return failure(self.shown, error)

    def _target(self, response: aiohttp.ClientResponse) -> str:
        status = response.status
        location = response.headers.get("Location", "")
        if not location:
            raise RedirectRefused(f"{self.shown} answered {status} without a Location", status)
        try:
            target = urljoin(self.url, location)
            is_elsewhere = urls.origin(target) != urls.origin(self.url)
            has_user = "@" in urlsplit(target).netloc
        except ValueError:
            raise RedirectRefused(f"{self.shown} redirects to an invalid URL", status) from None
        if has_user:  # a user in the URL would replace our credentials
            raise RedirectRefused(
                f"{self.shown} redirects to a URL that contains a user name", status
            )
        if is_elsewhere:
            is_safe = target.startswith("https:") or self.url.startswith("http:")
            raise RedirectRefused(
                f"{self.shown} redirects to {urls.display(target)}, which is not its origin"
                + ("; configure that URL if it is correct" if is_safe else ", without TLS"),
                status,
            )
        if status not in _FOLLOWED:
            raise RedirectRefused(
                f"{self.shown} redirects with {status}, which does not keep the request: "
                f"configure {urls.display(target)} if it is correct",
                status,
            )
        return target

    # Answers

    async def body(self, response: aiohttp.ClientResponse, limit: int = 0) -> bytes:
        """Read and decompress a whole body.

        Raises:
            MessageTooLarge: The body is over `limit` bytes; if `limit` is 0, over `max_bytes`.
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
        """Yield a stream's events until it ends; close this generator to stop earlier."""
        inflater = self._inflater(response, None)
        try:
            while chunk := await response.content.readany():
                for piece in inflater.feed(chunk):
                    for event in parser.feed(piece):
                        yield event
                    if len(piece) >= SLICE:  # so that many tiny lines do not block the event loop
                        await asyncio.sleep(0)
            inflater.finish()
        except FAILURES:
            for event in parser.finish():  # its data may be whole, although the stream is not
                yield event
            raise
        for event in parser.finish():
            yield event

    def _inflater(self, response: aiohttp.ClientResponse, limit: int | None) -> Inflater:
        return Inflater(response.headers.get("Content-Encoding", ""), limit, self.shown)

    def _too_large(self, limit: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"{self.shown} sent a message over the limit ({limit / 2**20:g} MiB)"
        )

    async def refusal(
        self, response: aiohttp.ClientResponse, own: Mapping[str, str] = NO_VALUES
    ) -> InterlockError:
        """Return the error for a response that refuses a request, which had headers of its own."""
        body = b""
        with suppress(InterlockError, *FAILURES):  # the status is enough if the body is missing
            async with asyncio.timeout(ERROR_BODY_TIMEOUT):
                body = await self.body(response, MAX_ERROR_BODY)
        shown = self._shown_with_redirect(response)
        secrets = (sent_token(response), *self._secrets, *own.values())
        return refusal(shown, response, body, secrets)

    def _shown_with_redirect(self, response: aiohttp.ClientResponse) -> str:
        """Return the URL for an error, and the URL to which the server redirected the request."""
        ours, theirs = urlsplit(self.url).path or "/", response.url.raw_path
        if theirs == ours:
            return self.shown
        hint, prefix = "", ours[: max(len(ours) + 1 - len(theirs), 0)]
        if prefix and f"{ours}/".endswith(theirs):  # a server does not know its proxy's prefix
            hint = f"; if a proxy adds {prefix}, configure {self.shown}/"
        return f"{self.shown} (redirected to {urls.display(str(response.url))}{hint})"


async def _send_authorized(
    authorization: Authorization,
    request: Request,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
) -> aiohttp.ClientResponse:
    """Send a request with the token; send it once more if the server demands a nonce."""
    if not authorization.token:
        await authorization.valid_token()
    response = await request(url, headers={**headers, **authorization.headers(method, url)})
    if authorization.needs_resend(response.status, response.headers):
        response.release()
        response = await request(url, headers={**headers, **authorization.headers(method, url)})
        authorization.needs_resend(response.status, response.headers)
    return response


class PendingReplies:
    """Tracks responses and notifications that one server has not accepted yet."""

    def __init__(self) -> None:
        self._answers: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether the limit on waiting responses is reached, so that the connection must end."""
        return len(self._answers) >= MAX_PENDING_REPLIES

    def overflow(self, shown: str) -> ConnectionClosed:
        """Return the error for a connection that ends because too many responses wait."""
        return ConnectionClosed(
            f"{shown} does not accept our responses ({MAX_PENDING_REPLIES:,} are waiting)"
        )

    def add(self, task: asyncio.Task[None], *, is_answer: bool) -> None:
        """Add a sending task; cancel it after `REPLY_TIMEOUT` seconds."""
        timer = task.get_loop().call_later(REPLY_TIMEOUT, task.cancel)
        task.add_done_callback(lambda _: timer.cancel())
        if is_answer:
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)


_SHOWN = frozenset(("User-Agent", "Accept-Encoding"))  # headers without secrets
_SECRET = frozenset(("authorization", "cookie", "set-cookie", "dpop", "proxy-authorization"))


def _exchange(response: aiohttp.ClientResponse, own: Iterable[str]) -> str:
    """Describe an exchange without credentials: request line, status and headers."""
    masked = _SECRET | {name.lower() for name in own if name not in _SHOWN}
    request = response.request_info
    lines = [f"{request.method} {urls.display(str(request.url))}"]
    lines += _header_lines(request.headers, masked)
    lines += ["", f"{response.status} {response.reason or ''}".rstrip()]
    return "\n".join([*lines, *_header_lines(response.headers, masked)])


def _header_lines(headers: Mapping[str, str], masked: Collection[str]) -> list[str]:
    return [
        f"{name}: {'***' if name.lower() in masked else value}" for name, value in headers.items()
    ]


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
        raise ConfigError(f"the URL of {host} contains a user name; give credentials as headers")
    if parts.fragment:
        raise ConfigError(f"the URL of {host} has a fragment (#…); leave it out, as it is not sent")
    return urls.display(url)


def failure(shown: str, error: BaseException) -> InterlockError:
    """Convert one of `FAILURES`. The class shows whether the request was sent."""
    # aiohttp keeps the error, and its traceback would keep the received bytes in memory.
    error.__traceback__ = None
    if _is_out_of_memory(error):
        return OutOfMemory(f"{shown}: a message does not fit into memory")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return Unreachable(f"{shown} cannot be reached through its proxy: {_cause(error)}")
    if isinstance(error, aiohttp.ClientConnectorError):
        return Unreachable(f"{shown} cannot be reached: {_cause(error)}")
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return Unreachable(f"{shown} cannot be reached: connecting timed out")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        hint = "; check user and password in HTTPS_PROXY" if error.status == 407 else ""
        return Unreachable(f"the proxy refused {shown}: {error.status}{hint}")
    if isinstance(error, aiohttp.InvalidURL):
        return Unreachable(f"{shown} cannot be reached: its host is invalid")
    if "closing transport" in str(error.__cause__):  # raised before anything is sent
        return Unreachable(f"{shown} closed the connection before the request was sent")
    return StreamEnded(f"{shown}: {_cut(error)}")


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
        return os.strerror(inner.errno)  # without the address in the error's text
    return inner.strerror or type(inner).__name__


def _is_out_of_memory(error: BaseException | None) -> bool:
    while error is not None:
        # aiohttp reports the cause of a broken connection only in its error's text.
        if isinstance(error, MemoryError) or str(error).endswith("MemoryError()"):
            return True
        error = error.__cause__ or error.__context__
    return False


def _cut(error: BaseException) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection without an answer"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "it cut its answer off"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.http.HttpProcessingError):
        is_too_long = any(words in str(error) for words in _TOO_LONG)
        return "its headers are too long" if is_too_long else "its answer is not HTTP"
    if isinstance(error, OSError) and error.strerror:
        return f"the connection broke: {error.strerror}"
    return f"the connection broke: {type(error).__name__}"
