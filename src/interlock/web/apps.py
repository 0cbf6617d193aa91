"""MCP Apps: pages of servers, in a box on our page (`io.modelcontextprotocol/ui`).

1. The box is a frame whose document comes from `/apps/TICKET` with a policy of its own: an opaque
   origin without storage, cookies and parent. It loads from, and connects to, only the public
   https hosts that its server declares.
2. A ticket is for one request within a minute. It needs no cookie, as the box has none.
3. The document is pinned for its user: one that has changed is shown only after the user has
   accepted it.
4. A call of an app is one of its user, of a tool of the same server, and passes the whole policy.
"""

from __future__ import annotations

import base64
import secrets
from collections import OrderedDict
from hashlib import sha256
from time import monotonic

from msgspec import UNSET, Raw, Struct, UnsetType

from interlock.calls import Call, Caller, Entry
from interlock.errors import InterlockError, UnknownConversation
from interlock.server.http.json_api import ApiRequest, Problem, Route, not_found
from interlock.store.chat_apps import ChatAppStore
from interlock.types import JsonObject, ResourceContents
from interlock.web.app_documents import MIME, app_of, app_policy
from interlock.web.chat_api import ChatContext
from interlock.web.files import SECURITY, Answer

TICKET_TTL = 60.0  # seconds
MAX_TICKETS = 500  # documents that wait to be fetched
MAX_OPEN = 2_000  # apps whose calls are accepted
MAX_DOCUMENT = 8 * 1024 * 1024  # bytes


class _Document(Struct, frozen=True):
    body: bytes
    policy: bytes
    until: float


class _App(Struct, frozen=True):
    owner: str
    server: str


class Apps:
    """The apps of a chat.

    Args:
        context: What the routes of the chat need.
        pins: Which documents users have accepted.
    """

    def __init__(self, context: ChatContext, pins: ChatAppStore) -> None:
        self.context = context
        self.pins = pins
        self._documents: OrderedDict[str, _Document] = OrderedDict()
        self._open: OrderedDict[str, _App] = OrderedDict()

    def opened(self, owner: str, server: str, body: bytes, policy: bytes) -> tuple[str, str]:
        """Return the id of an app, and the ticket for its document."""
        id, ticket = secrets.token_urlsafe(16), secrets.token_urlsafe(24)
        self._open[id] = _App(owner, server)
        self._documents[ticket] = _Document(body, policy, monotonic() + TICKET_TTL)
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)
        while len(self._documents) > MAX_TICKETS:
            self._documents.popitem(last=False)
        return id, ticket

    def server_of(self, owner: str, id: str) -> str:
        """Return the server of an app that a user has opened.

        Raises:
            Problem: It is not open.
        """
        found = self._open.get(id)
        if found is None or found.owner != owner:
            raise not_found("no such app is open")
        return found.server

    def document(self, ticket: str) -> Answer | None:
        """Return the document of a ticket, once; None for another ticket."""
        now = monotonic()
        while self._documents and next(iter(self._documents.values())).until < now:
            self._documents.popitem(last=False)
        found = self._documents.pop(ticket, None)
        if found is None:
            return None
        headers = (
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", found.policy),
            *SECURITY,
            (b"cache-control", b"no-store"),
        )
        return Answer(200, headers, found.body)


# The routes


class OpenApp(Struct, frozen=True, forbid_unknown_fields=True):
    """The body that opens the app of a call; `accept` is the hash of a document that changed."""

    call: str
    accept: str = ""


async def open_app(apps: Apps, request: ApiRequest) -> JsonObject:
    """Return the address of the app of a call, which is good for one request."""
    context, given = apps.context, request.body
    caller = context.caller(request.principal)
    try:
        call = await context.store(request).calls.get(given.call)
    except UnknownConversation:
        raise not_found("no such call") from None
    entry = next((each for each in context.visible(caller) if each.address == call.tool), None)
    uri = app_of(entry).uri if entry is not None else ""
    if entry is None or not uri:
        raise not_found("this call has no app")
    found = await _read(context, _as_app(caller), entry, uri)
    body = _body_of(found)
    hash = sha256(body).hexdigest()
    pins, owner = apps.pins, caller.owner
    accepted = await pins.accepted(owner, entry.server, uri)
    if accepted is None or given.accept == hash:
        await pins.accept(owner, entry.server, uri, hash)
    elif accepted != hash:
        raise Problem(409, "app_changed", f"this app has changed since you accepted it ({hash})")
    about = (found.meta or {}).get("ui")
    about = about if isinstance(about, dict) else {}
    id, ticket = apps.opened(owner, entry.server, body, app_policy(about.get("csp")))
    return {
        "id": id,
        "path": f"/apps/{ticket}",
        "hasBorder": about.get("prefersBorder") is not False,
        "server": entry.server,
        "tool": Raw(entry.definition),
    }


async def _read(context: ChatContext, caller: Caller, entry: Entry, uri: str) -> ResourceContents:
    toolbox = context.engine.toolbox
    if toolbox is None:
        raise not_found("this call has no app")
    try:
        result = await toolbox.read_resource(entry.server, uri, caller=caller)
    except InterlockError as error:
        raise Problem(502, "app_unavailable", f"the app cannot be read: {error}") from None
    contents = [each for each in result.contents if each.uri == uri]
    kind = (contents[0].mime_type or "").replace(" ", "") if contents else ""
    if kind != MIME:
        raise Problem(502, "app_unavailable", f"the app is not a document of type {MIME}")
    return contents[0]


def _body_of(found: ResourceContents) -> bytes:
    try:
        body = base64.b64decode(found.blob) if found.blob else (found.text or "").encode()
    except ValueError:
        raise Problem(502, "app_unavailable", "the app's document is not valid Base64") from None
    if len(body) > MAX_DOCUMENT:
        text = f"the app's document is too large ({len(body):,} bytes, limit {MAX_DOCUMENT:,})"
        raise Problem(502, "app_unavailable", text)
    return body


class AppCall(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a call of an app."""

    name: str
    arguments: JsonObject | UnsetType = UNSET


async def call_tool(apps: Apps, request: ApiRequest) -> Raw:
    """Call a tool of the app's own server, as the user."""
    context, given = apps.context, request.body
    caller = context.caller(request.principal)
    server = apps.server_of(caller.owner, request.path["id"])
    entry = next(
        (
            each
            for each in context.visible(caller)
            if each.server == server
            and each.tool.name == given.name
            and "app" in app_of(each).visibility
        ),
        None,
    )
    toolbox = context.engine.toolbox
    if entry is None or toolbox is None:
        raise not_found("the app's server has no such tool for apps")
    arguments = {} if given.arguments is UNSET else given.arguments
    try:
        outcome = await toolbox.handle(Call(entry, arguments, _as_app(caller)))
    except InterlockError as error:
        reason = getattr(error, "reason", "") or "call_failed"
        raise Problem(422, reason, str(error)) from None
    return Raw(outcome.raw)


def _as_app(caller: Caller) -> Caller:
    return Caller(caller.principal, surface="app", address=caller.address)


ROUTES = (
    Route("POST", "/api/apps", "mcp:", open_app, "opens the app of a call", body=OpenApp),
    Route(
        "POST", "/api/apps/{id}/call", "mcp:", call_tool, "calls a tool for an app", body=AppCall
    ),
)

__all__ = ["ROUTES", "Apps"]
