"""A server as an ASGI application that serves modern and legacy clients on one path."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import quote

from msgspec import UNSET, DecodeError

from interlock.auth import Authenticator
from interlock.errors import AuthError, AuthUnavailable, CallRefused, ParseError
from interlock.protocol import envelope
from interlock.revisions import INVALID_PARAMS, LEGACY, MODERN
from interlock.server.answering import Answering
from interlock.server.http.guard import Guard
from interlock.server.http.header_checks import check_version, read_params
from interlock.server.http.http_options import HttpOptions
from interlock.server.http.legacy import Legacy
from interlock.server.http.legacy_sse import MESSAGES_PATH, MESSAGES_PATHS, STREAM_PATH, EventSource
from interlock.server.http.modern import Modern
from interlock.server.http.request import HttpRequest, RequestsUnderWay
from interlock.server.http.responses import (
    CLOSE,
    ClientGone,
    HttpRefusal,
    Receive,
    Scope,
    Send,
    http_refusal,
    no_memory,
    refuse,
    reply,
    reply_empty,
)
from interlock.server.http.sessions import SessionIds, Sessions
from interlock.server.http.streams import Budget
from interlock.server.http.views import ServedPath, Views, nothing_here
from interlock.server.request_context import CallParams
from interlock.server.wire_errors import request_refusal

AUTH_DEADLINE = 15.0  # seconds within which an authenticator must answer
DRAIN_RETRY = 30.0  # seconds after which a refused client may find another server at this URL

_LEGACY_VERSIONS = frozenset((None, *(each.encode() for each in LEGACY)))
_log = logging.getLogger("interlock.server.http")


class HttpApp:
    """An ASGI application that serves MCP over HTTP. For its options see `Server.asgi`.

    Args:
        server: Answers the requests.
        ids: Makes the ids of sessions that other processes can restore; None for random ids.

    Attributes:
        path: The path of the endpoint.
        sessions: The sessions of legacy clients.
        authenticator: Identifies the callers at `path`; None if any client may call.
        views: The views at paths below `path`.
        is_draining: Whether new requests are refused.
    """

    def __init__(
        self, server: Answering, options: HttpOptions, ids: SessionIds | None = None
    ) -> None:
        self._server = server
        self.path = "/" + options.path.strip("/")
        self._raw_path = quote(self.path).encode()
        self._below = self._raw_path.rstrip(b"/") + b"/"
        self._routes = {self._raw_path: ServedPath("mcp", MESSAGES_PATH)}
        if options.sse:
            self._routes[STREAM_PATH.encode()] = ServedPath("sse", MESSAGES_PATH)
            for each in MESSAGES_PATHS:
                self._routes[each.encode()] = ServedPath("messages", MESSAGES_PATH)
        self.views = options.views
        self._pages = options.pages
        self._beside = options.beside
        self._guard = Guard(options.hosts, options.origins, options.cors, options.caller_headers)
        # Pages of any origin may read what is published, such as the metadata for logins.
        self._public_guard = Guard(options.hosts, (), ("*",))
        self.authenticator = options.authenticator
        self._max_body_bytes = options.max_body_bytes
        self._caller_headers = options.caller_headers
        self._requests = RequestsUnderWay()
        budget = Budget(
            options.max_streams,
            server.dropped,
            max_each=options.max_streams_per_principal,
            keep_alive=options.keep_alive,
        )
        self.sessions = Sessions(server, options, budget, ids)
        self._modern = Modern(server, options, budget)
        self._legacy = Legacy(self.sessions, options.json_silence)
        self._sse = EventSource(self.sessions) if options.sse else None
        self._health = options.health_path
        self._running = AsyncExitStack()
        self._holders = 0
        self._has_warned = False
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self.is_draining = False

    @property
    def dropped(self) -> Counter[str]:
        """The numbers of dropped messages and requests, keyed by the reason; see `Server`."""
        return self._server.dropped

    def admit_by(self, authenticator: Authenticator | None, views: Views | None) -> None:
        """Use another authenticator and other views for new requests."""
        self.authenticator, self.views = authenticator, views

    @property
    def is_protected(self) -> bool:
        return self.authenticator is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        if not self._is_open:
            await self._open_late()
        request = HttpRequest(scope, receive, send)
        self._requests.new.add(request)
        if not self._requests.is_ticking:
            self._requests.begin_ticking()
        try:
            await self._serve(request)
        except ClientGone:
            pass
        except (HttpRefusal, AuthError, CallRefused, ParseError, MemoryError) as error:
            await self._refuse(request, self._refusal_of(error, request))
        finally:
            if request in self._requests.new:  # most requests end before they are late
                self._requests.new.remove(request)
            else:
                self._requests.remove(request)

    async def _refuse(self, request: HttpRequest, refusal: HttpRefusal) -> None:
        # Not in the `except` block: the exception's traceback refers to that function's frame, so
        # this cycle would keep the request in memory until the garbage collector runs.
        self._server.dropped[f"HTTP {refusal.status}"] += 1
        if not request.leaves_body(self._max_body_bytes):
            await refuse(request.send, refusal, request.extra)
            return
        # A client that is still sending does not read the refusal if the connection closes at once.
        await refuse(request.send, refusal, [*request.extra, CLOSE], ends=False)
        await request.discard_body()
        await request.send({"type": "http.response.body", "body": b""})

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            if self._beside is not None:
                await self._beside(scope, receive, send)
                return
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _serve(self, request: HttpRequest) -> None:
        scope = request.scope
        raw: bytes | None = scope.get("raw_path")
        if raw != self._raw_path or scope.get("root_path"):
            raw = _path_below_mount(scope)
        route = self._routes.get(raw) or self._route_of_view(raw)
        if route is None:
            await self._serve_public(request, raw)
            return
        server = scope.get("server")
        place = (request.headers.get(b"host"), None, server[0] if server else None)
        if request.repeated or b"origin" in request.headers or place not in self._guard.allowed:
            self._guard.check(request)
        method: str = scope["method"]
        if method == "OPTIONS" and (headers := self._guard.preflight(request)) is not None:
            await reply_empty(request.send, 204, headers)
            return
        authenticator = self.authenticator
        if route.view and self.views is not None:
            authenticator = self.views.authenticator(route.view)
        if authenticator is not None:
            request.authenticator = authenticator
            known = getattr(authenticator, "known", None)  # defined by `RemembersCallers` only
            request.principal = None if known is None else known(scope["headers"])
            if request.principal is None:
                await self._authenticate(request, authenticator)
            if route.view and self.views is not None:
                self.views.check(route.view)
        if self._caller_headers:
            request.read_caller_headers(self._caller_headers)
        if self.is_draining:
            text = "the server is shutting down; connect again later"
            raise CallRefused(text, "draining", DRAIN_RETRY)
        if route.kind != "mcp":
            await self._serve_sse(request, route, method)
        elif method == "POST":
            await self._post(request)
        elif method in ("GET", "DELETE") and self._has_session(request):
            await (self._legacy.open if method == "GET" else self._legacy.end)(request)
        else:
            raise _not_allowed(b"POST")

    def _route_of_view(self, path: bytes) -> ServedPath | None:
        if self.views is None or not path.startswith(self._below):
            return None
        route = self.views.route(self.path.rstrip("/"), path[len(self._below) :])
        return None if route is None or (route.kind != "mcp" and self._sse is None) else route

    @staticmethod
    async def _authenticate(request: HttpRequest, authenticator: Authenticator) -> None:
        scope = request.scope
        client = scope.get("client")
        work = authenticator.authenticate(scope["headers"], client[0] if client else None)
        try:
            request.principal = await request.within(work, AUTH_DEADLINE)
        except TimeoutError:
            _log.error("authentication took over %g s", AUTH_DEADLINE)
            raise AuthUnavailable("authentication took too long; try again later") from None

    async def _serve_sse(self, request: HttpRequest, route: ServedPath, method: str) -> None:
        if self._sse is None:
            raise nothing_here()
        if route.kind == "sse":
            if method != "GET":
                raise _not_allowed(b"GET")
            await self._sse.open(request, route.messages)
        else:
            if method != "POST":
                raise _not_allowed(b"POST")
            request.check_media()
            body = await request.read_body(self._max_body_bytes)
            await self._sse.post(request, body)

    async def _serve_public(self, request: HttpRequest, path: bytes) -> None:
        """Serve paths without authentication, such as OAuth metadata and other applications."""
        if path == self._health and request.scope["method"] in ("GET", "HEAD"):
            status = 503 if self.is_draining else 200
            await reply(
                request.send,
                status,
                b'{"status":"%b"}' % (b"draining" if self.is_draining else b"ok"),
                request.extra,
            )
            return
        make_page, document, raw = None, None, _raw_path(request.scope)
        if request.scope["method"] in ("GET", "OPTIONS"):
            make_page = self._pages.get(path.decode("latin-1"))
            if self.authenticator is not None:
                document = self.authenticator.published(raw.decode("latin-1"))
            if document is None and self.views is not None:
                document = self.views.published(raw)
        if make_page is None and document is None and self._beside is not None:
            await self._beside(request.scope, request.receive, request.send)
            return
        guard = self._guard if document is None else self._public_guard
        guard.check(request)
        if request.scope["method"] == "OPTIONS" and (make_page or document):
            # Clients in pages send headers of MCP with this request, so browsers ask first.
            if (headers := guard.preflight(request)) is None:
                raise _not_allowed(b"GET")
            await reply_empty(request.send, 204, headers)
        elif make_page is not None:
            page = await make_page()
            await reply(request.send, page.status, page.body, request.extra, kind=page.kind)
        elif document is not None:
            await reply(request.send, 200, document, request.extra)
        else:
            raise nothing_here()

    def _has_session(self, request: HttpRequest) -> bool:
        if b"mcp-session-id" not in request.headers or self.sessions.is_stateless:
            return False
        check_version(request)
        return request.header(b"mcp-protocol-version") not in MODERN

    async def _post(self, request: HttpRequest) -> None:
        headers = request.headers
        if headers.get(b"content-type") != b"application/json" or b"content-encoding" in headers:
            request.check_media()
        if not request.takes_json and not request.takes_stream:
            raise HttpRefusal(406, "responses are application/json or text/event-stream")
        body = await request.read_body(self._max_body_bytes)
        if body[:1] != b"{" and self._is_batch(request, body):
            await self._legacy.serve_batch(request, body)
            return
        message = envelope.decode(body)
        try:
            params, stated = read_params(message)
        except (DecodeError, RecursionError) as error:
            id = None if message.id is UNSET else message.id
            raise HttpRefusal(400, f"params: {error}", INVALID_PARAMS, id=id) from None
        is_modern = stated is None or bool(stated.revision)
        if not is_modern and headers.get(b"mcp-protocol-version") not in _LEGACY_VERSIONS:
            is_modern = self._names_modern(request, message.method)
        if stated is None or is_modern:
            await self._modern.serve(request, message, params, stated)
        else:
            call_params = params if isinstance(params, CallParams) else None
            await self._legacy.serve(request, message, stated, call_params)

    @staticmethod
    def _names_modern(request: HttpRequest, method: object) -> bool:
        """Return whether the version header names a modern revision, if the body names none.

        `initialize` negotiates the revision in its body, so there an unknown one in the header, or
        an empty header, does not matter.
        """
        version = request.header(b"mcp-protocol-version")
        if method == "initialize":
            return version in MODERN
        return version is not None and version not in LEGACY

    @staticmethod
    def _is_batch(request: HttpRequest, body: bytes) -> bool:
        if body.lstrip()[:1] != b"[":
            return False
        check_version(request)
        return request.header(b"mcp-protocol-version") not in MODERN

    def _refusal_of(self, error: BaseException, request: HttpRequest) -> HttpRefusal:
        if isinstance(error, HttpRefusal):
            return error
        if isinstance(error, MemoryError):  # the host ends a response that has begun
            return no_memory()
        if isinstance(error, ParseError):
            return HttpRefusal(400, str(error), error.code)
        if isinstance(error, AuthError):
            if error.status == 404:  # the view does not exist for this caller
                return nothing_here()
            if error.status == 401 and not error.challenge and request.authenticator is not None:
                error.challenge = request.authenticator.challenge
        return http_refusal(request_refusal(error))

    # Lifespan

    @asynccontextmanager
    async def lifespan(self, _host: object = None) -> AsyncGenerator[None, None]:
        """Run the server's lifespan inside the lifespan of the application that mounts this one.

        Pass this method to the host: `FastAPI(lifespan=tools.lifespan)`. If the host has a lifespan
        of its own, enter this one in it: `async with tools.lifespan(app): ...`.
        """
        self._holders += 1
        try:
            await self.open()
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                await self.close()

    async def _open_late(self) -> None:
        """Enter the lifespan for a request, because the host has sent no lifespan events."""
        if self._opening is None and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "a request has opened the server's lifespan, so nothing will close it; write "
                "FastAPI(lifespan=tools.lifespan) or Starlette(lifespan=tools.lifespan), where "
                "tools = server.asgi() is the mounted application"
            )
        await self.open()

    async def open(self) -> None:
        """Enter the server's lifespan, unless it has been entered."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._enter())
        await asyncio.shield(self._opening)

    async def _enter(self) -> None:
        try:
            await self._running.enter_async_context(self._server.running())
        except BaseException:
            self._opening = None
            raise
        self._is_open = True

    @property
    def under_way(self) -> int:
        return len(self._requests)

    def drain(self) -> None:
        """Refuse new requests; end idle sessions and streams; let running calls finish."""
        self.is_draining = True
        self.end_streams()

    def end_credentials(self, keys: Collection[str]) -> None:
        """End the calls, sessions and streams of API keys that are no longer valid."""
        self._modern.end_credentials(keys)
        self.sessions.end_credentials(keys)

    def end_streams(self) -> None:
        """End idle sessions and subscription streams; let running calls finish."""
        self._modern.close()
        self.sessions.drain()

    async def close(self) -> None:
        """End all sessions and streams, and exit the server's lifespan."""
        self._modern.close()
        self.sessions.close()
        self._is_open = False
        opening, self._opening = self._opening, None
        if opening is not None:
            await opening
            self._is_open = False
            await self._running.aclose()

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            starting = message["type"] == "lifespan.startup"
            event = "startup" if starting else "shutdown"
            try:
                await (self.open() if starting else self.close())
            except Exception:
                _log.exception("%s failed", event)
                await send({"type": f"lifespan.{event}.failed", "message": "see the log"})
                return
            await send({"type": f"lifespan.{event}.complete"})
            if not starting:
                return


def _raw_path(scope: Scope) -> bytes:
    """Return the path exactly as the client sent it, so that other spellings get a 404."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]).encode() if raw is None else raw


def _path_below_mount(scope: Scope) -> bytes:
    """Return the raw path without the prefix at which the application is mounted."""
    path = _raw_path(scope)
    root: str = scope.get("root_path", "")
    for prefix in (root.encode(), quote(root).encode()):
        if root and path.startswith(prefix):
            path = path[len(prefix) :]
            break
    if len(path) > 1 and path.endswith(b"/"):
        path = path[:-1]
    return path or b"/"


def _not_allowed(instead: bytes) -> HttpRefusal:
    return HttpRefusal(405, "this method is not allowed here", headers=[(b"allow", instead)])
