"""MCP Apps: pages of servers, in a frame of our page (`io.modelcontextprotocol/ui`).

1. The frame's document comes from `/apps/TICKET` with a policy of its own: an opaque origin
   without storage, cookies and parent. It loads from, and connects to, only the public https
   hosts that its server declares.
2. The document is pinned for its user: a changed one is shown only after the user has accepted
   it.
3. A call by an app counts as its user's call. It may only use tools of the same server, and
   passes the whole policy. Where a rule asks, the user is asked on the page.
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

MAX_OPEN = 2_000  # open apps; the calls of others are refused
WAIT = 25.0  # seconds that a page may wait for the end of a call


class _App(Struct, frozen=True):
    owner: str
    server: str
    conversation: str


class Apps:
    """The apps of a chat.

    Args:
        context: The context of the chat's routes.
        pins: The documents that users have accepted.
        tickets: The documents that wait to be fetched.
        built_in: Whether the built-in rules apply; settings of a conversation may replace them.
        origin: The origins of apps that have a domain; None if such apps are not served.
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
        """Open an app: return the id under which its calls are accepted from now on."""
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
    """The body that opens the app of a call; `accept` is the hash of a changed document."""

    call: str
    accept: str = ""


async def open_app(apps: Apps, request: ApiRequest) -> JsonObject:
    """Return the address of the app of a call; it can be requested once."""
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
    """The body of an app's call."""

    name: str
    arguments: JsonObject | UnsetType = UNSET


async def call_tool(apps: Apps, request: ApiRequest) -> JsonObject:
    """Call a tool of the app's own server as the user; return the result, or the question."""
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
    made = AppCall(id, caller.owner, Call(entry, arguments, _as_app(caller)), state)
    apps.calls.add(made)
    made.begin(toolbox.handle)
    return await made.shown("", WAIT)


async def _state_of(apps: Apps, request: ApiRequest, app: _App, entry: Entry) -> str:
    """Return the app's conversation's setting for a tool; see `TurnToolbox.state_of`."""
    try:
        conversation = await apps.context.store(request).resolve(app.conversation)
    except UnknownConversation:
        raise not_found("the app's conversation was deleted") from None
    states: dict[str, str] = conversation.settings.get("tools", {})
    state = states.get(entry.address) or states.get(entry.server, "")
    return "" if state == "on" and not apps.built_in else state


class Waiting(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a call: the seconds to wait, and the question that the page shows already."""

    wait: Annotated[float, Meta(ge=0, le=WAIT)] = 0.0
    seen: str = ""


async def get_call(apps: Apps, request: ApiRequest) -> JsonObject:
    """Return the result of a call, or the question to its user."""
    return await _found(apps, request).shown(request.query.seen, request.query.wait)


class AppDecisionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a decision: the hash of the call that was shown."""

    hash: str


async def approve(apps: Apps, request: ApiRequest) -> None:
    """Allow a call."""
    _found(apps, request).decide(request.body.hash, True)


async def deny(apps: Apps, request: ApiRequest) -> None:
    """Deny a call."""
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
