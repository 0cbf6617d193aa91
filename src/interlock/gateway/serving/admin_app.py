"""The application of the admin listener: health checks for probes, and metrics for operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

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
        authenticator: Authenticates operators.
        beside: The application that serves all other paths. It must check `Host` and `Origin`.
        is_local: Whether only this machine can connect. Pages then need no authentication, if
            `guard` allows the request.
        guard: Checks `Host` and `Origin` of requests for pages.
    """

    path = ""
    under_way = 0

    def __init__(
        self,
        probes: Mapping[str, MakePage],
        pages: Mapping[str, MakePage],
        authenticator: Authenticator,
        beside: AsgiApp,
        *,
        is_local: bool,
        guard: Guard | None = None,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self._probes = probes
        self._pages = pages
        self._authenticator = authenticator
        self._beside = beside
        self._is_local = is_local
        self._guard = guard or Guard(None, (), ())

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
            await self._admit(request)
        page = await make_page()
        await reply(request.send, page.status, page.body, kind=page.kind)

    async def _admit(self, request: HttpRequest) -> None:
        """Refuse a request that is not an operator's.

        A program in a pod states an address in `Host` that no configuration lists. It is admitted
        by its key: a page in a browser may forge `Host`, but does not know a key.
        """
        needs_key = not self._is_local
        try:
            self._guard.check(request)
        except HttpRefusal as refusal:
            if refusal.status != 403 or not _is_of_program(request):
                raise
            needs_key = True
        if needs_key:
            await self._authenticate(request)
        elif b"authorization" in request.headers:
            with suppress(HttpRefusal):  # only so that the use of the key is stored
                await self._authenticate(request)

    async def _authenticate(self, request: HttpRequest) -> None:
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


def _is_of_program(request: HttpRequest) -> bool:
    """Return whether a request has a credential, and nothing that only browsers send."""
    headers = request.headers
    return b"authorization" in headers and b"cookie" not in headers and b"origin" not in headers
