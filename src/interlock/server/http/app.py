"""A server as an ASGI application: both eras on one path."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from urllib.parse import quote

from msgspec import UNSET

from interlock.errors import AuthError, ParseError
from interlock.protocol import envelope
from interlock.revisions import ALL, LEGACY, MODERN
from interlock.server.answering import Answering
from interlock.server.http import header_checks, modern
from interlock.server.http.guard import Guard
from interlock.server.http.legacy import Legacy
from interlock.server.http.legacy_sse import MESSAGES_PATH, STREAM_PATH, EventSource
from interlock.server.http.modern import Modern
from interlock.server.http.options import HttpOptions
from interlock.server.http.request import HttpRequest, SlowRequests
from interlock.server.http.responses import (
    CLOSE,
    ClientGone,
    HttpRefusal,
    Receive,
    Scope,
    Send,
    no_memory,
    refuse,
    reply,
    reply_empty,
)
from interlock.server.http.sessions import Sessions
from interlock.server.http.streams import Budget

_SSE_PATHS = (STREAM_PATH.encode(), MESSAGES_PATH.encode())
_log = logging.getLogger("interlock.server.http")


class Endpoint:
    """An ASGI application. Arguments: see `Server.asgi`."""

    def __init__(self, server: Answering, options: HttpOptions) -> None:
        self._server = server
        self.path = "/" + options.path.strip("/")
        self._raw_path = quote(self.path).encode()
        self._guard = Guard(options.hosts, options.origins, options.cors)
        self._auth = options.bearer
        self._max_body_bytes = options.max_body_bytes
        self._patience = SlowRequests()
        self.sessions = Sessions(options)
        budget = Budget(
            options.max_streams, server.dropped, max_each=options.max_streams_per_principal
        )
        self._modern = Modern(server, options, budget)
        self._legacy = Legacy(server, options, self.sessions, budget)
        self._sse = EventSource(server, options, self.sessions, budget) if options.sse else None
        self._runner: asyncio.Task[None] | None = None
        self._is_open = False
        self._ready: asyncio.Future[None] | None = None
        self._stop = asyncio.Event()

    @property
    def dropped(self) -> Counter[str]:
        """How much was dropped, by reason: see `Server`."""
        return self._server.dropped

    @property
    def is_protected(self) -> bool:
        """Whether clients must show a token."""
        return self._auth is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        if not self._is_open:
            await self.open()
        exchange = HttpRequest(scope, receive, send)
        self._patience.add(exchange)
        try:
            await self._serve(exchange)
        except ClientGone:
            pass
        except (HttpRefusal, AuthError, ParseError, MemoryError) as error:
            await self._refuse(exchange, _refusal_of(error))
        finally:
            self._patience.remove(exchange)

    async def _refuse(self, exchange: HttpRequest, refusal: HttpRefusal) -> None:
        # Not where it was caught: it knows that function, which would know it, and both would
        # keep the request until somebody looks for such circles.
        self._server.dropped[f"HTTP {refusal.status}"] += 1
        if not exchange.leaves_body(self._max_body_bytes):
            await refuse(exchange.send, refusal, exchange.extra)
            return
        # A client that still sends would not read a refusal on a connection that is closed now.
        await refuse(exchange.send, refusal, [*exchange.extra, CLOSE], ends=False)
        await exchange.discard_body()
        await exchange.send({"type": "http.response.body", "body": b""})

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _serve(self, exchange: HttpRequest) -> None:
        self._guard.check(exchange)
        scope = exchange.scope
        path: bytes | None = scope.get("raw_path")
        if path != self._raw_path or scope.get("root_path"):
            path = _path_below_mount(scope)
        method: str = scope["method"]
        if path != self._raw_path and (self._sse is None or path not in _SSE_PATHS):
            await self._serve_elsewhere(exchange)
            return
        if method == "OPTIONS" and (headers := self._guard.preflight(exchange)) is not None:
            await reply_empty(exchange.send, 204, headers)
            return
        if self._auth is not None:
            exchange.principal = await self._auth.principal_of(exchange.all(b"authorization"))
        if path != self._raw_path:
            await self._serve_oldest(exchange, path, method)
        elif method == "POST":
            await self._post(exchange)
        elif method in ("GET", "DELETE") and self._is_legacy(exchange):
            await (self._legacy.open if method == "GET" else self._legacy.end)(exchange)
        else:
            raise _not_allowed(b"POST")

    async def _serve_oldest(self, exchange: HttpRequest, path: bytes, method: str) -> None:
        assert self._sse is not None  # noqa: S101 - it was, when the path was looked at
        if path == _SSE_PATHS[0]:
            if method != "GET":
                raise _not_allowed(b"GET")
            await self._sse.open(exchange)
        else:
            if method != "POST":
                raise _not_allowed(b"POST")
            exchange.check_json()
            body = await exchange.read_body(self._max_body_bytes)
            await self._sse.post(exchange, body)

    async def _serve_elsewhere(self, exchange: HttpRequest) -> None:
        """Serve what anybody may read: where tokens for this endpoint come from."""
        if (
            self._auth is None
            or _raw_path(exchange.scope) != self._auth.metadata_path.encode()
            or exchange.scope["method"] != "GET"
        ):
            raise HttpRefusal(404, "nothing is served at this path")
        await reply(exchange.send, 200, self._auth.metadata(), exchange.extra)

    @staticmethod
    def _is_legacy(exchange: HttpRequest) -> bool:
        if b"mcp-session-id" not in exchange.headers:
            return False
        version = exchange.header(b"mcp-protocol-version")
        if version is not None and version not in ALL:
            raise HttpRefusal(400, "the protocol revision is not supported")
        return version not in MODERN

    async def _post(self, exchange: HttpRequest) -> None:
        exchange.check_json()
        if not exchange.accepts("application/json") and not exchange.accepts("text/event-stream"):
            raise HttpRefusal(406, "answers are application/json or text/event-stream")
        body = await exchange.read_body(self._max_body_bytes)
        if body[:1] != b"{" and self._is_batch(exchange, body):
            await self._legacy.serve_batch(exchange, body)
            return
        message = envelope.decode(body)
        try:
            params = header_checks.params_of(message)
        except ParseError as error:
            id = None if message.id is UNSET else message.id
            raise HttpRefusal(400, str(error), error.code, id=id) from None
        stated = modern.stated_by(params)
        if modern.is_modern(stated, exchange):
            await self._modern.serve(exchange, message, params, stated)
        else:
            await self._legacy.serve(exchange, message)

    @staticmethod
    def _is_batch(exchange: HttpRequest, body: bytes) -> bool:
        version = exchange.header(b"mcp-protocol-version")
        return body.lstrip()[:1] == b"[" and (version is None or version in LEGACY)

    # Running

    async def open(self) -> None:
        """Enter the server's lifespan; without a lifespan of the host, on the first request."""
        if self._runner is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._runner = asyncio.create_task(self._run(self._ready))
        assert self._ready is not None  # noqa: S101 - made with the runner
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            self._runner = None
            raise
        self._is_open = True

    async def _run(self, ready: asyncio.Future[None]) -> None:
        try:
            async with self._server.running():
                self._stop.clear()
                ready.set_result(None)
                await self._stop.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    def end_streams(self) -> None:
        """End what never ends by itself: idle sessions, and streams of subscribers.

        Calls that run may finish.
        """
        self._modern.close()
        self.sessions.drain()

    async def close(self) -> None:
        """End sessions and streams, and leave the server's lifespan."""
        self._modern.close()
        self.sessions.close()
        self._is_open = False
        runner, self._runner = self._runner, None
        if runner is not None:
            self._stop.set()
            await runner

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
    """Return the path as the client sent it, so that no other spelling of it is served."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]).encode() if raw is None else raw


def _path_below_mount(scope: Scope) -> bytes:
    """Return the raw path below the prefix that the application is mounted at."""
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


def _refusal_of(error: HttpRefusal | AuthError | ParseError | MemoryError) -> HttpRefusal:
    if isinstance(error, HttpRefusal):
        return error
    if isinstance(error, MemoryError):  # where a reply has begun, the host ends the connection
        return no_memory()
    if isinstance(error, ParseError):
        return HttpRefusal(400, str(error), error.code)
    challenge = [(b"www-authenticate", error.challenge.encode())] if error.challenge else []
    return HttpRefusal(error.status, str(error), headers=challenge)
