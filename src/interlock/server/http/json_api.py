"""JSON routes over HTTP, declared as a table of method, path, scope and handler.

1. These are checked in order: the origin, the path, the other rules of `PageGuard`, the caller's
   credential, the method, the scope, the size limits, and the types of query and body. Then the
   handler runs.
2. A path without a route gets the same 404 for all callers.
3. An error is sent as `application/problem+json` with a stable `reason`. It has a `reference` to
   the log, except for statuses whose errors must all look alike.
4. The text of an unexpected exception is not sent to the caller.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Any, TypeAlias, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec
from msgspec import Struct

from interlock.auth import Authenticator, Principal
from interlock.errors import (
    AuditUnavailable,
    AuthError,
    AuthUnavailable,
    ConfigError,
    InsufficientScope,
    InterlockError,
    ParseError,
    StoreError,
    StoreFull,
)
from interlock.protocol import envelope
from interlock.protocol.envelope import encode
from interlock.server.http.page_guard import PageGuard
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import (
    ClientGone,
    Header,
    HttpRefusal,
    Receive,
    Scope,
    Send,
    disconnected,
    reply,
    reply_empty,
)
from interlock.server.wire_errors import log_bug, log_name
from interlock.text.surrogates import repair_json
from interlock.types import JsonObject

MAX_BODY = 1024 * 1024  # bytes of a request body
MAX_QUERY = 8_192  # bytes of a query string
SEND_DEADLINE = 60.0  # seconds within which a client must read each piece of a response
AUTH_DEADLINE = 15.0  # seconds that an authenticator may take
PROBLEM = b"application/problem+json"
NO_STORE: Header = (b"cache-control", b"no-store")
_HEADERS: tuple[Header, ...] = (NO_STORE, (b"x-content-type-options", b"nosniff"))
_REASONS = {
    400: "bad_request",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    413: "too_large",
    415: "unsupported_media_type",
    503: "overloaded",
}
_TITLES = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    503: "Service Unavailable",
    507: "Insufficient Storage",
}
_PARAMETER = re.compile(r"\{(\w+)(\*?)\}")
_ALIKE = (401, 404)  # statuses whose responses must reveal nothing, so they have no reference

NOBODY = Principal("")

S = TypeVar("S", bound=Struct)
_log = logging.getLogger("interlock.server")


class Problem(InterlockError):
    """An error response of the API.

    Args:
        status: HTTP status.
        reason: A stable code for programs.
        text: One line for people, without secrets.
        retry_after: Seconds after which the same request may succeed; None if waiting does not
            help.
        headers: Additional response headers.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        text: str,
        *,
        retry_after: float | None = None,
        headers: Iterable[Header] = (),
    ) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason
        self.text = text
        self.retry_after = retry_after
        self.headers = list(headers)


def not_found(what: str = "nothing is served at this path") -> Problem:
    """Return the 404 for an object that does not exist, or that another user owns."""
    return Problem(404, "not_found", what)


class ApiRequest(Struct, frozen=True):
    """A request that has passed all checks.

    Attributes:
        path: The values of the path's parameters.
        query: The query parameters, decoded as `Route.query`.
        body: The request body, decoded as `Route.body`.
        principal: The caller; without id and scopes if the route requires no credential.
    """

    http: HttpRequest
    path: Mapping[str, str] = {}
    query: Any = None
    body: Any = None
    principal: Principal = NOBODY


class JsonReply(Struct, frozen=True):
    """A JSON response with a status other than 200, or with additional headers."""

    body: object = None
    status: int = 200
    headers: tuple[Header, ...] = ()


class LineStream(Struct, frozen=True):
    """A response that is sent in pieces.

    Attributes:
        chunks: The pieces of the body.
        kind: The media type of the body.
    """

    chunks: AsyncGenerator[bytes, None]
    kind: bytes = b"application/x-ndjson"


Handle: TypeAlias = Callable[[Any, ApiRequest], Awaitable[object]]


class Route(Struct, frozen=True):
    """One route of the API.

    Attributes:
        method: The HTTP method.
        path: A path with parameters such as `{id}`; `{name*}` also matches slashes.
        scope: The scope that the caller needs; "mcp:" for any scope with this prefix; "any" for
            any valid credential; "" if no credential is needed.
        handle: Called with the route table's context and the request. It returns JSON, a
            `JsonReply`, a `LineStream`, or None for status 204.
        about: A description for the API's documentation.
        query: The type of the query parameters.
        body: The type of the request body.
    """

    method: str
    path: str
    scope: str
    handle: Handle
    about: str
    query: type[Struct] | None = None
    body: type[Struct] | None = None


class _Place(Struct, frozen=True):
    """All routes with the same path."""

    pattern: re.Pattern[str]
    routes: dict[str, tuple[Any, Route]]  # context and route, by HTTP method


class JsonApi:
    """An ASGI application that serves JSON routes.

    Args:
        tables: Route tables, each a pair of the context that its handlers receive and its routes.
        guard: Checks every request before anything else.
        authenticator: Identifies callers.
    """

    def __init__(
        self,
        tables: Iterable[tuple[Any, Sequence[Route]]],
        guard: PageGuard,
        authenticator: Authenticator,
    ) -> None:
        self._guard = guard
        self.authenticator = authenticator
        places: dict[str, _Place] = {}
        for context, routes in tables:
            for route in routes:
                place = places.setdefault(route.path, _Place(_compiled(route.path), {}))
                place.routes[route.method] = context, route
        self._places = list(places.values())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request; refuse a WebSocket."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4404})
            return
        request = HttpRequest(scope, receive, send)
        try:
            answer = await self._answer(request)
        except ClientGone:
            return
        except Exception as error:
            problem = _problem_of(error, self.authenticator, request)
            await _send_problem(send, problem)
            return
        await _send_answer(request, answer)

    async def _answer(self, request: HttpRequest) -> object:
        self._guard.check_origin(request)
        place, parameters = self._find(_raw_path(request.scope))
        self._guard.check_content(request)
        principal = NOBODY
        if any(route.scope for _, route in place.routes.values()):
            principal = await self._authenticate(request)
        found = place.routes.get(request.scope["method"])
        if found is None:
            allowed = ", ".join(sorted(place.routes)).encode()
            text = f"this path takes {allowed.decode()}"
            raise Problem(405, "method_not_allowed", text, headers=[(b"allow", allowed)])
        context, route = found
        if route.scope:
            check_scope(principal, route.scope)
        query = None if route.query is None else _read_query(request, route.query)
        body = None
        if route.body is not None:
            body = _read_body(await request.read_body(MAX_BODY), route.body)
        return await route.handle(context, ApiRequest(request, parameters, query, body, principal))

    def _find(self, path: str) -> tuple[_Place, dict[str, str]]:
        for place in self._places:
            match = place.pattern.fullmatch(path)
            if match is not None:
                return place, {name: _unquoted(text) for name, text in match.groupdict().items()}
        raise not_found()

    async def _authenticate(self, request: HttpRequest) -> Principal:
        headers, peer = request.scope["headers"], request.address or None
        try:
            async with asyncio.timeout(AUTH_DEADLINE):
                return await self.authenticator.authenticate(headers, peer)
        except TimeoutError:
            raise AuthUnavailable("authentication took too long; try again later") from None


def check_scope(principal: Principal, scope: str) -> None:
    """Check that a caller has the scope that a route requires; see `Route.scope`.

    Raises:
        InsufficientScope: The caller lacks the scope.
    """
    is_prefix = scope.endswith(":")
    if scope == "any" or scope in principal.scopes:
        return
    if not is_prefix or not any(each.startswith(scope) for each in principal.scopes):
        raise InsufficientScope((f"{scope}read" if is_prefix else scope,))


# Reading


def _compiled(path: str) -> re.Pattern[str]:
    def group(match: re.Match[str]) -> str:
        return rf"(?P<{match[1]}>{'.+' if match[2] else '[^/]+'})"

    # A path's fixed parts contain only words, slashes and dots, so only dots need escaping.
    return re.compile(_PARAMETER.sub(group, path.replace(".", r"\.")))


def _raw_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    path = (raw or scope["path"].encode()).partition(b"?")[0].decode("latin-1")
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root else path


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise not_found() from None


def _read_query(request: HttpRequest, kind: type[S]) -> S:
    raw: bytes = request.scope.get("query_string", b"")
    if len(raw) > MAX_QUERY:
        text = f"the query is too long ({len(raw)} bytes, limit {MAX_QUERY})"
        raise Problem(400, "bad_request", text)
    try:
        pairs = parse_qsl(raw.decode("latin-1"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise Problem(400, "bad_request", "the query is not valid UTF-8") from None
    given = dict(pairs)
    if len(given) != len(pairs):
        raise Problem(400, "bad_request", "the query repeats a parameter")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(400, "bad_request", _placed("query", error)) from None


def _read_body(body: bytes, kind: type[S]) -> S:
    body = repair_json(body)
    try:
        envelope.check_bounds(body)
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, ParseError, RecursionError) as error:  # their texts show no values
        raise Problem(400, "bad_request", _placed("body", error)) from None


def _placed(part: str, error: Exception) -> str:
    """Return msgspec's error with its place first: "query.limit: Expected `int` <= 500"."""
    text, _, place = str(error).partition(" - at `$")
    return f"{part}{place.removesuffix('`')}: {text}"


# Answering


async def _send_answer(request: HttpRequest, answer: object) -> None:
    send = request.send
    if isinstance(answer, LineStream):
        await _send_stream(request, answer)
        return
    if not isinstance(answer, JsonReply):
        answer = JsonReply(answer)
    headers = (*_HEADERS, *answer.headers)
    if answer.body is None:
        await reply_empty(send, 204 if answer.status == 200 else answer.status, headers)
    else:
        await reply(send, answer.status, encode(answer.body), headers)


async def _send_stream(request: HttpRequest, answer: LineStream) -> None:
    """Send the pieces; stop early if the client disconnects or stops reading."""
    send, start = request.send, {"type": "http.response.start", "status": 200}
    gone = asyncio.create_task(disconnected(request.receive))
    try:
        await send(start | {"headers": [(b"content-type", answer.kind), *_HEADERS]})
        async for chunk in answer.chunks:
            async with asyncio.timeout(SEND_DEADLINE):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if gone.done():
                return
        await send({"type": "http.response.body", "body": b""})
    except TimeoutError:
        _log.warning("an answer was cut: the client read nothing for %g s", SEND_DEADLINE)
    finally:
        gone.cancel()
        await answer.chunks.aclose()


async def _send_problem(send: Send, problem: Problem) -> None:
    members: JsonObject = {
        "type": "about:blank",
        "title": _TITLES.get(problem.status, "Error"),
        "status": problem.status,
        "detail": problem.text,
        "reason": problem.reason,
    }
    if problem.status not in _ALIKE:
        members["reference"] = reference = secrets.token_hex(6)
        _log.info("refused: %s, reference %s: %s", problem.reason, reference, problem.text)
    headers = [*_HEADERS, *problem.headers]
    if problem.retry_after is not None:
        wait = max(1, ceil(problem.retry_after))
        members["retryAfter"] = wait
        headers.append((b"retry-after", b"%d" % wait))
    await reply(send, problem.status, encode(members), headers, kind=PROBLEM)


def _problem_of(error: Exception, authenticator: Authenticator, request: HttpRequest) -> Problem:
    match error:
        case Problem():
            return error
        case HttpRefusal(status=status, message=message):
            return Problem(status, _REASONS.get(status, "refused"), message, headers=error.headers)
        case AuthError(status=status, reason=reason):
            later = 5.0 if status == 503 else None
            challenge = error.challenge or (authenticator.challenge if status == 401 else "")
            headers = [(b"www-authenticate", challenge.encode())] if challenge else []
            text = str(error)
            if status == 404:
                return not_found()
            return Problem(status, reason or "refused", text, retry_after=later, headers=headers)
        case AuditUnavailable():  # the texts of these two errors name the database
            text = "changes cannot be recorded now, so they are not made; try again later"
            return Problem(503, "audit_unavailable", text, retry_after=1.0)
        case StoreFull():
            return Problem(507, "storage_full", str(error))
        case StoreError():
            _log.error("the database cannot be used: %s", error)
            text = "the database cannot be used now; try again later"
            return Problem(503, "store_unavailable", text, retry_after=5.0)
        case ConfigError():
            return Problem(422, "config_invalid", str(error))
        case _:
            where = f"{request.scope['method']} {request.scope['path']}"
            reference = log_bug(where, error)
            text = f"the request failed; {log_name()} has the details under {reference}"
            return Problem(500, "internal_error", text)
