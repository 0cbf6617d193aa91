"""The application of the admin listener: health checks for probes, and metrics for operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from interlock.auth import Authenticator
from interlock.errors import AuthError
from interlock.server.http.guard import Guard
from interlock.server.http.http_options import AsgiApp, MakePage
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import (
    HttpRefusal,
    Receive,
    Scope,
    Send,
    http_refusal,
    refuse,
    reply,
)
from interlock.server.http.views import nothing_here
from interlock.server.wire_errors import request_refusal


class AdminApp:
    """An ASGI application that serves health checks, metrics and the admin API.

    Args:
        probes: Pages that need no authentication. `Host` is not checked, because probes send an IP
            address or no `Host` at all.
        pages: Pages for operators.
        authenticator: Authenticates operators; None if every client is an operator.
        beside: The application that serves all other paths. It must check `Host` and `Origin`.
    """

    path = ""
    under_way = 0

    def __init__(
        self,
        probes: Mapping[str, MakePage],
        pages: Mapping[str, MakePage],
        authenticator: Authenticator | None,
        beside: AsgiApp,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._probes = probes
        self._pages = pages
        self._authenticator = authenticator
        self._beside = beside
        self._guard = Guard(None, (), ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "websocket" or not self._page_at(scope):
            await self._beside(scope, receive, send)
        else:
            request = HttpRequest(scope, receive, send)
            try:
                await self._serve(request)
            except HttpRefusal as refusal:
                await refuse(send, refusal)

    def _page_at(self, scope: Scope) -> MakePage | None:
        if scope["method"] != "GET":
            return None
        return self._probes.get(scope["path"]) or self._pages.get(scope["path"])

    async def _serve(self, request: HttpRequest) -> None:
        make_page = self._page_at(request.scope)
        if make_page is None:
            raise nothing_here()
        if request.scope["path"] not in self._probes:
            self._guard.check(request)
            await self._authenticate(request)
        page = await make_page()
        await reply(request.send, page.status, page.body, kind=page.kind)

    async def _authenticate(self, request: HttpRequest) -> None:
        if self._authenticator is None:
            return
        client = request.scope.get("client")
        try:
            await self._authenticator.authenticate(
                request.scope["headers"], client[0] if client else None
            )
        except AuthError as error:
            raise http_refusal(request_refusal(error)) from None

    def drain(self) -> None:
        """Do nothing, because probes are answered until the process ends."""

    def end_streams(self) -> None:
        """Do nothing, because this application has no streams."""
