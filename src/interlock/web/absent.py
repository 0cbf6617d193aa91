"""The page for an unknown address, which browsers get instead of a JSON error."""

from __future__ import annotations

from collections.abc import Callable

from interlock.server.http.http_options import AsgiApp
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import Message
from interlock.web.files import SHARED_STYLES, HttpResponse, Shell

ABSENT = Shell("interlock", "shared/absent.js", SHARED_STYLES)


async def serve_or_absent(
    app: AsgiApp, request: HttpRequest, page: Callable[[], HttpResponse]
) -> None:
    """Pass a request to an application; show a page to a browser instead of a 404 error in JSON.

    Requests of scripts and of the pages' modules do not accept HTML, and get the 404 unchanged.

    Args:
        app: The application.
        page: Returns the page.
    """
    scope, send = request.scope, request.send
    if not takes_page(request):
        await app(scope, request.receive, send)
        return
    is_replaced = False

    async def send_or_replace(message: Message) -> None:
        nonlocal is_replaced
        if message["type"] == "http.response.start" and message["status"] == 404:
            is_replaced = not _is_html(message)
            if is_replaced:
                await page().send(send, with_body=scope["method"] != "HEAD")
        if not is_replaced:
            await send(message)

    await app(scope, request.receive, send_or_replace)


def takes_page(request: HttpRequest) -> bool:
    """Return whether a request accepts HTML, as a browser's request for a page does."""
    is_reading = request.scope["method"] in ("GET", "HEAD")
    return is_reading and b"text/html" in request.headers.get(b"accept", b"")


def _is_html(start: Message) -> bool:
    return any(
        name == b"content-type" and value.startswith(b"text/html")
        for name, value in start["headers"]
    )
