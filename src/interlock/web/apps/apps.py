"""MCP Apps: servers' pages, shown in frames of our page (`io.modelcontextprotocol/ui`).

1. The frame's document comes from `/apps/TICKET`. Its content policy gives it an opaque origin, so
   it has no storage, no cookies and no access to our page. It loads from, and connects to, only
   the public https hosts that its server declares.
2. The document is pinned for each user: a changed document is shown only after the user has
   accepted it.
3. An app calls tools as its user. It can call only its own server's tools, and each call passes
   the whole policy. If a rule requires an approval, the page asks the user.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from hashlib import sha256
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from interlock.calls import Call, Caller, Entry
from interlock.errors import InterlockError, UnknownConversation
from interlock.server.http.json_api import ApiRequest, Problem, Route, not_found
from interlock.store.chat.apps import ChatAppStore
from interlock.types import JsonObject
from interlock.web.app_documents import AppDocument, app_of, unavailable
from interlock.web.apps.calls import AppCall, AppCalls
from interlock.web.apps.origin import AppsOrigin
from interlock.web.apps.tickets import Tickets
from interlock.web.chat.chat_api import ChatApiContext

MAX_OPEN = 2_000  # open apps; with more, the oldest app can no longer make calls
WAIT = 25.0  # seconds that one request of a page may wait for a call to end


class _App(Struct, frozen=True):
    owner: str
    server: str
    conversation: str


class Apps:
    """Keeps a chat's open apps, and makes their calls.

    Args:
        context: The context of the chat's routes.
        pins: Stores the documents that users have accepted.
        tickets: Serves the documents to the frames.
        built_in: Whether the built-in rules apply, which a conversation's settings can override.
        origin: The origins of apps that have a domain; None serves no such apps.
    """

    def __init__(
        self,
        context: ChatApiContext,
        pins: ChatAppStore,
        tickets: Tickets | None = None,
        *,
        built_in: bool = False,
        origin: AppsOrigin | None = None,
    ) -> None:
        self.context = context
        self.pins = pins
        self.tickets = tickets or Tickets()
        self.built_in = built_in
        self.origin = origin
        self.calls = AppCalls()
        self._open: OrderedDict[str, _App] = OrderedDict()

    def opened(self, owner: str, server: str, conversation: str) -> str:
        """Register an open app; return the id with which it makes calls."""
        id = secrets.token_urlsafe(16)
        self._open[id] = _App(owner, server, conversation)
        while len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)
        return id

    def find(self, owner: str, id: str) -> _App:
        """Return an app that a user has opened.

        Raises:
            Problem: The app is not open.
        """
        found = self._open.get(id)
        if found is None or found.owner != owner:
            raise not_found("no such app is open")
        return found

    async def close(self) -> None:
        await self.calls.close()


# The routes


class OpenApp(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to open a call's app.

    `accept` is the hash of a changed document that the user accepts.
    """

    call: str
    accept: str = ""


async def open_app(apps: Apps, request: ApiRequest) -> JsonObject:
    """Return the URL of the app of a call; the URL works once."""
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
    page = apps.origin.page if apps.origin is not None else ""
    found = await _read(context, _as_app(caller), entry, uri, page)
    hash = sha256(found.body).hexdigest()
    pins, owner = apps.pins, caller.owner
    accepted = await pins.accepted(owner, entry.server, uri)
    if accepted is None or given.accept == hash:
        await pins.accept(owner, entry.server, uri, hash)
    elif accepted != hash:
        raise Problem(409, "app_changed", f"this app has changed since you accepted it ({hash})")
    origin = ""
    if apps.origin is not None and found.has_domain:
        origin = apps.origin.of_server(entry.server)
    return {
        "origin": origin,
        "id": apps.opened(owner, entry.server, call.conversation_id),
        "path": apps.tickets.path_of(found.body, found.policy),
        "hasBorder": found.has_border,
        "server": entry.server,
        "tool": Raw(entry.definition),
    }


async def _read(
    context: ChatApiContext, caller: Caller, entry: Entry, uri: str, page: str
) -> AppDocument:
    toolbox = context.engine.toolbox
    if toolbox is None:
        raise not_found("this call has no app")
    try:
        result = await toolbox.read_resource(entry.server, uri, caller=caller)
    except InterlockError as error:
        raise unavailable(error) from None
    listed = toolbox.upstreams[entry.server].items["resources"].definitions
    return AppDocument.of(result, uri, listed, page)


class NewCall(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request by which an app calls a tool."""

    name: str
    arguments: JsonObject | UnsetType = UNSET


async def call_tool(apps: Apps, request: ApiRequest) -> JsonObject:
    """Call a tool of the app's server as the user; return the result, or a question to the user."""
    context, given = apps.context, request.body
    caller = context.caller(request.principal)
    id = request.path["id"]
    app = apps.find(caller.owner, id)
    entry = next(
        (
            each
            for each in context.visible(caller)
            if each.server == app.server
            and each.tool.name == given.name
            and "app" in app_of(each).visibility
        ),
        None,
    )
    toolbox = context.engine.toolbox
    state = await _state_of(apps, request, app, entry) if entry is not None else "off"
    if entry is None or toolbox is None or state == "off":
        raise not_found("the app's server has no such tool for apps")
    arguments = {} if given.arguments is UNSET else given.arguments
    call = Call(entry, arguments, _as_app(caller))
    toolbox.convert_arguments(call)  # the user is shown what is sent
    made = AppCall(id, caller.owner, call, state)
    apps.calls.add(made)
    made.begin(toolbox.handle)
    return await made.shown("", WAIT)


async def _state_of(apps: Apps, request: ApiRequest, app: _App, entry: Entry) -> str:
    """Return the setting for a tool in the app's conversation; see `TurnToolbox.state_of`."""
    try:
        conversation = await apps.context.store(request).resolve(app.conversation)
    except UnknownConversation:
        raise not_found("the app's conversation was deleted") from None
    states: dict[str, str] = conversation.settings.get("tools", {})
    state = states.get(entry.address) or states.get(entry.server, "")
    return "" if state == "on" and not apps.built_in else state


class Waiting(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a request for a call's result.

    It has the seconds to wait, and the hash of the question that the page already shows.
    """

    wait: Annotated[float, Meta(ge=0, le=WAIT)] = 0.0
    seen: str = ""


async def get_call(apps: Apps, request: ApiRequest) -> JsonObject:
    """Return the result of an app's call, or the question that the user must answer first."""
    return await _found(apps, request).shown(request.query.seen, request.query.wait)


class AppDecisionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a decision, with the hash of the call that the page showed."""

    hash: str


async def approve(apps: Apps, request: ApiRequest) -> None:
    """Allow an app's call that waits for its user."""
    _found(apps, request).decide(request.body.hash, True)


async def deny(apps: Apps, request: ApiRequest) -> None:
    """Deny an app's call that waits for its user."""
    _found(apps, request).decide(request.body.hash, False)


def _found(apps: Apps, request: ApiRequest) -> AppCall:
    owner = apps.context.caller(request.principal).owner
    return apps.calls.find(owner, request.path["id"], request.path["call"])


def _as_app(caller: Caller) -> Caller:
    return Caller(caller.principal, surface="app", address=caller.address)


_CALL = "/api/apps/{id}/calls/{call}"
ROUTES = (
    Route("POST", "/api/apps", "mcp:", open_app, "opens the app of a call", body=OpenApp),
    Route("POST", "/api/apps/{id}/calls", "mcp:", call_tool, "calls a tool for it", body=NewCall),
    Route("GET", _CALL, "mcp:", get_call, "the result of such a call", query=Waiting),
    Route("POST", f"{_CALL}/approve", "mcp:", approve, "lets it run", body=AppDecisionBody),
    Route("POST", f"{_CALL}/deny", "mcp:", deny, "refuses it", body=AppDecisionBody),
)
