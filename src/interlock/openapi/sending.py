"""Requests to an API: credentials, the check of the URL, redirects and retries.

Rules:

1. The URL of every request is on the origin of `baseUrl`, and below its path.
2. A redirect is followed only for GET and HEAD, and only to a URL below `baseUrl`. Other redirects
   are returned to the model.
3. A request is retried at most once: after a rejected token, after a short `Retry-After`, or after
   a lost answer if a second request has no further effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import AuthRequired, InterlockError, ToolError, Unreachable
from interlock.openapi.answers import ApiAnswer, Exchange, Headers, OperationRequest
from interlock.openapi.identity import MASK, Alternatives, Credentials, Identity
from interlock.text.urls import origin
from interlock.transports.http_errors import retry_after

MAX_REQUEST_BYTES = 32 * 1024 * 1024
MAXREDIRECTS = 3
MAX_WAIT = 5.0  # the longest Retry-After to wait for, in seconds
REPEAT_PAUSE = 0.2  # seconds before a request without an answer is retried
REDIRECTS = (301, 302, 303, 307, 308)
_MAX_DECODES = 3


class Planned(Struct, frozen=True):
    """The request for one call, without credentials.

    Attributes:
        method: HTTP method.
        target: The encoded path and query, which are appended to the base URL.
        headers: The headers that the operation describes.
        body: The body; None if the request has no body.
        security: The operation's alternative sets of security schemes.
        is_idempotent: Whether sending the request twice has the same effect as sending it once.
        limit: The most bytes to read of the answer's body.
        shown: The operation's method and path, for messages.
    """

    method: str
    target: str
    headers: Headers
    body: bytes | None
    security: Alternatives
    is_idempotent: bool
    limit: int
    shown: str


class Sender:
    """Sends requests to one API.

    Args:
        exchange: Sends a single request.
        base_url: The URL to which each request's target is appended.
        headers: The operator's headers, sent with each request.
        timeout: Seconds for one call, including retries.
        concurrent: The most requests at the same time; further requests wait.
    """

    def __init__(
        self,
        exchange: Exchange,
        base_url: str,
        headers: Mapping[str, str],
        timeout: float,
        concurrent: int,
    ) -> None:
        self.exchange = exchange
        self._base = base_url.rstrip("/")
        self._parts = urlsplit(self._base)
        self._origin = origin(base_url)
        self._headers = dict(headers)
        self._timeout = timeout
        self._slots = asyncio.Semaphore(concurrent)

    # Building

    def is_below_base(self, url: str) -> bool:
        """Return whether a URL has the base URL's origin, and its path as a prefix."""
        try:
            parts = urlsplit(url)
            is_same = parts[:2] == self._parts[:2] or (
                origin(url) == self._origin and "@" not in parts.netloc
            )
        except ValueError:
            return False
        is_below = parts.path.startswith(f"{self._parts.path}/")
        return is_same and is_below and not _has_dot_segment(parts.path)

    def request(
        self, planned: Planned, credentials: Credentials, *, masked: bool = False
    ) -> OperationRequest:
        """Build a request with its credentials; the operator's headers override the call's headers.

        Args:
            planned: The request without credentials.
            credentials: The credentials of this request.
            masked: Whether to mask the operator's headers, which may contain secrets.

        Raises:
            ToolError: The request is too large, or its URL is not allowed.
        """
        size = len(planned.body or b"")
        if size > MAX_REQUEST_BYTES:
            limit = MAX_REQUEST_BYTES // 2**20
            raise ToolError(
                f"the request is too large ({size / 2**20:.1f} MiB, limit {limit} MiB); send less"
            )
        own = dict.fromkeys(self._headers, MASK) if masked else self._headers
        own = {**own, **credentials.headers}
        headers = planned.headers
        if own:
            replaced = {name.lower() for name in own}
            headers = [each for each in headers if each[0].lower() not in replaced]
        if credentials.cookies:
            pairs = [f"{name}={value}" for name, value in credentials.cookies.items()]
            pairs += [value for name, value in headers if name.lower() == "cookie"]
            headers = [each for each in headers if each[0].lower() != "cookie"]
            headers.append(("Cookie", "; ".join(pairs)))
        deadline = asyncio.get_running_loop().time() + self._timeout
        target = credentials.target(planned.target) if credentials.query else planned.target
        url = f"{self._base}{target}"
        if not target.startswith("/") or not self.is_below_base(url):
            raise ToolError("the request is not sent: its URL is not below baseUrl")
        return OperationRequest(
            planned.method, url, [*headers, *own.items()], planned.body, planned.limit, deadline
        )

    # Sending

    async def send(self, planned: Planned, identity: Identity, owner: str = "") -> ApiAnswer:
        """Send a request and return its answer, including an error status.

        Raises:
            ToolError: The API did not answer; the text says whether the call may have had its
                effect.
            LoginRequired: The user has to log in first.
            InterlockError: No token can be obtained.
        """
        async with self._slots:
            credentials = await identity.credentials(planned.security, owner)
            request = self.request(planned, credentials)
            return await self._send(request, planned, credentials)

    async def _send(
        self, request: OperationRequest, planned: Planned, credentials: Credentials
    ) -> ApiAnswer:
        if credentials.tokens:
            request = _authorized(request, credentials)
        try:
            answer = await self._fetch(request, planned)
        except _Lost:
            if not planned.is_idempotent or _left(request) <= REPEAT_PAUSE:
                raise
            await asyncio.sleep(REPEAT_PAUSE)
            answer = await self._fetch(request, planned)
        else:
            if answer.status == 401 and await self._renewed(credentials, request):
                request = _authorized(request, credentials)
                answer = await self._fetch(request, planned)
            elif answer.status >= 400 and _may_repeat(answer, planned, _left(request)):
                await asyncio.sleep(_pause(answer))
                answer = await self._fetch(request, planned)
        for _ in range(MAXREDIRECTS):
            target = self._redirect(answer, request) if answer.status in REDIRECTS else None
            if target is None:
                break
            request = replace(request, url=target)
            answer = await self._fetch(request, planned)
        return answer

    async def _fetch(self, request: OperationRequest, planned: Planned) -> ApiAnswer:
        try:
            return await self.exchange.fetch(request)
        except Unreachable as error:
            raise _Lost(f"{planned.shown}: {error}; the request was not sent") from None
        except TimeoutError:
            raise ToolError(
                f"{planned.shown} did not answer within {self._timeout:g} s; {effect(planned)}"
            ) from None
        except InterlockError as error:
            raise _Lost(f"{planned.shown}: {error}; {effect(planned)}") from None

    async def _renewed(self, credentials: Credentials, request: OperationRequest) -> bool:
        """Renew the tokens that the API rejected; return whether there are new tokens."""
        used = [source.token for source in credentials.tokens]
        for source in credentials.tokens:
            error = AuthRequired("the API refuses the token", 401)
            error.token_used = source.token
            try:
                async with asyncio.timeout_at(request.deadline):
                    await source.refresh_after(error)
            except (InterlockError, TimeoutError):
                return False
        return [source.token for source in credentials.tokens] != used

    def _redirect(self, answer: ApiAnswer, request: OperationRequest) -> str | None:
        """Return the URL of a redirect that may be followed, or None."""
        target = redirect_target(answer)
        is_safe = request.method in ("GET", "HEAD") and request.body is None
        return target if is_safe and target and self.is_below_base(target) else None


def redirect_target(answer: ApiAnswer) -> str:
    """Return the URL to which an answer redirects; "" if the answer is not a redirect."""
    location = answer.headers.get("location", "")
    if answer.status not in REDIRECTS or not location:
        return ""
    try:
        target = urljoin(answer.url, location)
        parts = urlsplit(target)
        parts.port  # noqa: B018 - raises an error if the port is invalid
    except ValueError:
        return ""
    return target if parts.scheme in ("http", "https") else ""


def _authorized(request: OperationRequest, credentials: Credentials) -> OperationRequest:
    headers = [each for each in request.headers if each[0].lower() not in ("authorization", "dpop")]
    for source in credentials.tokens:
        headers += source.headers(request.method, request.url).items()
    return replace(request, headers=headers)


# Repeating


def effect(planned: Planned) -> str:
    """Describe whether a failed call may have had its effect."""
    if planned.method in ("GET", "HEAD", "OPTIONS", "QUERY"):
        return "it changes nothing, so it can be called again"
    return "it may have been carried out: check before you call it again"


class _Lost(ToolError):
    """The error for a request whose connection failed before an answer arrived."""


def _left(request: OperationRequest) -> float:
    return request.deadline - asyncio.get_running_loop().time()


def _may_repeat(answer: ApiAnswer, planned: Planned, left: float) -> bool:
    """Return whether to retry a request after this answer; `left` seconds remain."""
    wait = retry_after(answer.headers.get("retry-after", ""))
    if answer.status in (429, 503):  # the API refused the request, so it had no effect
        return wait is not None and wait <= MAX_WAIT and wait < left
    return answer.status >= 500 and planned.is_idempotent and left > REPEAT_PAUSE


def _pause(answer: ApiAnswer) -> float:
    wait = retry_after(answer.headers.get("retry-after", ""))
    return wait if wait is not None and answer.status in (429, 503) else REPEAT_PAUSE


def _has_dot_segment(path: str) -> bool:
    """Return whether a path, decoded up to `_MAX_DECODES` times, has a segment `.` or `..`."""
    for _ in range(_MAX_DECODES + 1):
        if not {".", ".."}.isdisjoint(path.replace("\\", "/").split("/")):
            return True
        decoded = unquote(path)
        if decoded == path:
            return False
        path = decoded
    return False
