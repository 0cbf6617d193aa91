"""One-time URLs from which frames fetch the documents of apps.

A ticket is valid for one request within a minute. It replaces a cookie, which the frame lacks.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from time import monotonic

from msgspec import Struct

from interlock.server.http.http_options import AsgiApp
from interlock.server.http.responses import Receive, Scope, Send
from interlock.web.files import SECURITY, HttpResponse

TICKET_TTL = 60.0  # seconds
MAX_TICKETS = 500  # documents that wait to be fetched
PREFIX = "/apps/"  # the path of a document is this prefix and the ticket


class _Document(Struct, frozen=True):
    body: bytes
    policy: bytes
    until: float


class Tickets:
    """Serves the documents of apps at `/apps/TICKET`, each once."""

    def __init__(self) -> None:
        self._documents: OrderedDict[str, _Document] = OrderedDict()

    def path_of(self, body: bytes, policy: bytes) -> str:
        """Return a path at which a document can be fetched once.

        Args:
            body: The document's HTML.
            policy: The document's Content-Security-Policy.
        """
        ticket = secrets.token_urlsafe(24)
        self._documents[ticket] = _Document(body, policy, monotonic() + TICKET_TTL)
        while len(self._documents) > MAX_TICKETS:
            self._documents.popitem(last=False)
        return PREFIX + ticket

    def document(self, path: str) -> HttpResponse | None:
        """Return the document at a path and forget its ticket; None if no ticket has this path."""
        now = monotonic()
        while self._documents and next(iter(self._documents.values())).until < now:
            self._documents.popitem(last=False)
        found = self._documents.pop(path.removeprefix(PREFIX), None)
        if found is None or not path.startswith(PREFIX):
            return None
        headers = (
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", found.policy),
            *SECURITY,
            (b"cache-control", b"no-store"),
        )
        return HttpResponse(200, headers, found.body)


class TicketSite:
    """An ASGI application that serves the documents of tickets, and passes other requests on."""

    def __init__(self, tickets: Tickets, beside: AsgiApp) -> None:
        self._tickets = tickets
        self._beside = beside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = None
        if scope["type"] == "http" and scope["method"] == "GET":
            found = self._tickets.document(scope["path"])
        if found is None:
            await self._beside(scope, receive, send)
        else:
            await found.send(send)
