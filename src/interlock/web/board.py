"""The operators' pages: the board under /gateway, and the page of one call under /calls.

The pages are the same for every user and contain no data. Their modules fetch it from the JSON API,
which checks the session's cookie and its page key.
"""

from __future__ import annotations

from functools import cached_property, partial

from interlock import __version__
from interlock.server.http.http_options import AsgiApp
from interlock.server.http.page_guard import PageGuard
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import HttpRefusal, Receive, Scope, Send, refuse
from interlock.types import JsonObject
from interlock.web.absent import ABSENT, serve_or_absent, takes_page
from interlock.web.files import (
    SHARED_STYLES,
    Files,
    HttpResponse,
    Shell,
    files_of_package,
    log_report,
)
from interlock.web.inspector import inspector_page as inspect_pages

_STYLES = (*SHARED_STYLES, "board/board.css")

# The module of each screen, by the first part of the path below /gateway.
SCREENS = {
    "": "overview",
    "servers": "servers",
    "tools": "tools",
    "keys": "keys",
    "clients": "clients",
    "approvals": "approvals",
    "audit": "audit",
    "pins": "pins",
    "limits": "limits",
}


class Board:
    """An ASGI application that serves these pages and their files, and passes other paths on.

    Args:
        beside: The application for other paths, such as the JSON API.
        guard: Checks the Host, Origin and content type of requests.
        has_chat: Whether the program also serves the chat.
    """

    def __init__(self, beside: AsgiApp, guard: PageGuard, *, has_chat: bool = False) -> None:
        self._beside = beside
        self._guard = guard
        self._data: JsonObject = {"version": __version__, "chat": has_chat, "board": True}

    @cached_property
    def _files(self) -> Files:  # read at the first request
        return files_of_package()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._beside(scope, receive, send)
            return
        request = HttpRequest(scope, receive, send)
        try:
            answer = await self._answer(scope["path"], request)
        except HttpRefusal as refusal:
            await refuse(send, refusal)
            return
        if answer is None:
            await serve_or_absent(self._beside, request, partial(self._page, ABSENT, request, 404))
        else:
            await answer.send(send, with_body=scope["method"] != "HEAD")

    async def _answer(self, path: str, request: HttpRequest) -> HttpResponse | None:
        method = request.scope["method"]
        if method == "POST" and path == "/api/csp":
            self._guard.check_origin(request)
            return await log_report(request)
        if self._data["chat"] and path.startswith("/calls/"):
            return None  # the chat serves /calls itself
        if method not in ("GET", "HEAD"):
            return None
        if path.startswith("/static/"):
            return self._files.answer(path.removeprefix("/static/"), request.headers)
        status = 200
        if (shell := _shell_at(path)) is None:
            if not (path.startswith("/gateway/") and takes_page(request)):
                return None
            shell, status = Shell("interlock gateway", "board/board.js", _STYLES), 404
        self._guard.check_origin(request)
        return self._page(shell, request, status)

    def _page(self, shell: Shell, request: HttpRequest, status: int) -> HttpResponse:
        return self._files.page(shell, self._data, request.headers, status=status)


def _shell_at(path: str) -> Shell | None:
    if (screen := screen_at(path)) is not None:
        return Shell("interlock gateway", "board/board.js", _STYLES, (screen,))
    return inspect_pages.shell_at(path)


def screen_at(path: str) -> str | None:
    """Return the module of the screen at a path; None if the path has no screen."""
    match path.strip("/").split("/"):
        case ["login"]:
            return "board/screens/overview.js"
        case ["calls", _]:
            return "board/screens/call.js"
        case ["gateway", *rest] if len(rest) <= 2:
            screen = SCREENS.get(rest[0] if rest else "")
            return None if screen is None else f"board/screens/{screen}.js"
        case _:
            return None
