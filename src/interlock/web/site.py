"""The chat's pages, socket and JSON routes as one ASGI application."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from urllib.parse import parse_qs

import msgspec

from interlock import __version__
from interlock.auth import Authenticator, Principal
from interlock.auth.page_session import PAGE_KEY
from interlock.calls import Caller
from interlock.errors import AuthError, StoreFull
from interlock.server.http.http_options import AsgiApp
from interlock.server.http.page_guard import PageGuard
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import HttpRefusal, Receive, Scope, Send, refuse
from interlock.types import JsonObject
from interlock.web import files
from interlock.web.absent import ABSENT, serve_or_absent
from interlock.web.apps.apps import Apps
from interlock.web.chat import attachments
from interlock.web.chat.app import ChatApp
from interlock.web.chat.chat_api import ChatApiContext
from interlock.web.files import HttpResponse, Shell
from interlock.web.inspector import inspector_page as inspect_pages

CHAT = Shell(
    title="interlock",
    entry="chat/chat.js",
    styles=(*files.SHARED_STYLES, "chat/chat.css"),
    later="chat/later.js",
)
_OTHER_CLIENTS = ("/ag-ui", "/ag-ui/stop", "/api/chat", "/api/chat/stop")


class Site:
    """An ASGI application that serves the chat.

    Args:
        chat: Serves the socket, and the protocols for other clients.
        context: The objects that the chat's JSON routes use.
        api: Serves the JSON routes.
        guard: Checks the Host, Origin and content type of requests.
        authenticator: Identifies callers.
        features: Data for the page in addition to the version.
        apps: The servers' apps; None serves no apps.
    """

    def __init__(
        self,
        chat: ChatApp,
        context: ChatApiContext,
        api: AsgiApp,
        guard: PageGuard,
        authenticator: Authenticator,
        *,
        features: Mapping[str, bool] | None = None,
        apps: Apps | None = None,
    ) -> None:
        self.apps = apps
        self._chat = chat
        self._context = context
        self._api = api
        self._guard = guard
        self._authenticator = authenticator
        self._files = files.files_of_package()
        self._is_closing = False
        self._data: JsonObject = {"version": __version__, "chat": True, **(features or {})}

    async def close(self) -> None:
        """End all turns and close all sockets; pages can reconnect and resume."""
        self._is_closing = True
        if self.apps is not None:
            await self.apps.close()
        await self._chat.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        path: str = scope["path"]
        request = HttpRequest(scope, receive, send)
        try:
            if path in _OTHER_CLIENTS:
                if self._is_closing:
                    raise HttpRefusal(503, "the server is shutting down; try again later")
                if PAGE_KEY in request.headers:  # only our pages send this header
                    self._guard.check(request)
                await self._chat(scope, receive, send)
                return
            answer = await self._answer(path, request)
        except HttpRefusal as refusal:
            await refuse(send, refusal)
            return
        if answer is None:
            await serve_or_absent(self._api, request, partial(self._page, ABSENT, request, 404))
        else:
            await answer.send(send, with_body=scope["method"] != "HEAD")

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._is_closing:
            await send({"type": "websocket.close", "code": 1001})  # before accept: status 403
            return
        try:
            self._guard.check_origin(HttpRequest({**scope, "method": "GET"}, receive, send))
        except HttpRefusal:
            await send({"type": "websocket.close", "code": 4403})  # before accept: status 403
            return
        await self._chat(scope, receive, send)

    async def _answer(self, path: str, request: HttpRequest) -> HttpResponse | None:
        method = request.scope["method"]
        if method in ("GET", "HEAD"):
            if self.apps is not None and (document := self.apps.tickets.document(path)):
                return document
            if path.startswith("/static/"):
                return self._files.answer(path.removeprefix("/static/"), request.headers)
            shell = CHAT if _is_page(path) else None
            if self._data.get("inspect"):
                shell = shell or inspect_pages.shell_at(path)
            if shell is not None:
                self._guard.check_origin(request)
                return self._page(shell, request)
        elif method == "POST" and path == "/api/csp":
            self._guard.check_origin(request)
            return await files.log_report(request)
        elif method == "POST" and path == "/api/files":
            return await self._upload(request)
        return None

    def _page(self, shell: Shell, request: HttpRequest, status: int = 200) -> HttpResponse:
        return self._files.page(
            *(shell, self._data, request.headers),
            status=status,
            frames=self._frames(),
        )

    def _frames(self) -> list[str]:
        origin = self.apps.origin if self.apps is not None else None
        return [origin.pattern] if origin is not None else []

    async def _upload(self, request: HttpRequest) -> HttpResponse:
        """Store a file that the page uploads: the body is its content, the query has its name."""
        self._guard.check_origin(request)
        try:
            principal = await self._authenticate(request)
        except AuthError as error:
            return _json(error.status, {"reason": "unauthorized", "detail": str(error)})
        name = _name_of(request)
        content = await request.read_body(attachments.MAX_FILE)
        caller: Caller = self._context.caller(principal)
        store = self._context.engine.store.owned_by(caller.owner).files
        try:
            file = await store.add(name, attachments.sniff(content), content)
        except StoreFull as error:
            return _json(507, {"reason": "storage_full", "detail": str(error)})
        return _json(201, attachments.described(file))

    async def _authenticate(self, request: HttpRequest) -> Principal:
        # A cookie alone is not enough: a header is required that pages of other sites cannot send.
        return await self._authenticator.authenticate(
            request.scope["headers"], request.address or None
        )


def _is_page(path: str) -> bool:
    parts = path.split("/")
    return path in ("", "/", "/login") or (
        len(parts) == 3 and parts[1] in ("c", "calls") and bool(parts[2])
    )


def _name_of(request: HttpRequest) -> str:
    query = parse_qs(request.scope.get("query_string", b"").decode("latin-1"))
    names: list[str] = query.get("name", ["file"])
    return names[0][:200]


def _json(status: int, body: JsonObject) -> HttpResponse:
    kind = (b"content-type", b"application/json")
    return HttpResponse(
        status, (kind, *files.SECURITY, (b"cache-control", b"no-store")), msgspec.json.encode(body)
    )
