"""The JSON routes of the inspector."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from time import monotonic
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from interlock import schema
from interlock.errors import ConfigError, InvalidArguments, SchemaError, UnknownKey
from interlock.protocol.envelope import encode
from interlock.server.http.json_api import (
    ApiRequest,
    JsonReply,
    LineStream,
    Problem,
    Route,
    not_found,
)
from interlock.types import JsonObject
from interlock.web.inspector import call_texts as inspect_texts
from interlock.web.inspector.connection import kind_of
from interlock.web.inspector.inspection import Inspection
from interlock.web.inspector.inspector import ERAS, Inspector, Wanted
from interlock.web.inspector.result_parts import ResultPart

WAIT = 25.0  # seconds that one request of a page may wait for the next entry of the wire
LOOK_EVERY = 0.5  # seconds between two checks whether a server's files have changed


async def list_servers(inspector: Inspector, _request: ApiRequest) -> JsonObject:
    """List the servers that can be inspected."""
    states = inspector.host.toolbox.status
    items = [
        {
            "name": name,
            "kind": kind_of(server),
            "state": states[name].state if name in states else "",
            "tools": states[name].tools if name in states else 0,
        }
        for name, server in inspector.servers.items()
    ]
    shown: JsonObject = {
        "items": items,
        "eras": ERAS,
        "local": inspector.host.is_local,
        "keys": inspector.host.principal_of is not None,
    }
    return shown if items else shown | {"reason": "no_servers"}


async def begin(inspector: Inspector, request: ApiRequest) -> JsonReply:
    """Return the caller's open inspection of a server, or begin an inspection."""
    if inspector.is_closing:
        raise Problem(503, "draining", "the server is shutting down", retry_after=5.0)
    try:
        found = await inspector.open(request.principal, request.body)
    except ConfigError as error:
        raise Problem(422, "not_inspected", str(error)) from None
    except UnknownKey:
        raise not_found("no key has this id") from None
    if found is None:
        raise not_found("no server has this name")
    return JsonReply(found.shown(), 201)


def _found(inspector: Inspector, request: ApiRequest) -> Inspection:
    found = inspector.find(request.principal, request.path["id"])
    if found is None:
        raise not_found("no inspection has this id")
    return found


async def get_state(inspector: Inspector, request: ApiRequest) -> JsonObject:
    """Return an inspection's state: the server, its lists, and the calls so far."""
    return _found(inspector, request).shown()


async def end(inspector: Inspector, request: ApiRequest) -> None:
    """End an inspection."""
    inspector.end(_found(inspector, request))


class RestartBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a restart request: the protocol era to use; "" keeps the present era."""

    era: str = ""


async def restart(inspector: Inspector, request: ApiRequest) -> JsonObject:
    """Reconnect to a server; if it is a program, restart it."""
    if (era := request.body.era) and era not in ERAS:
        raise Problem(422, "not_inspected", f"unknown era; use one of {', '.join(ERAS)}")
    found = _found(inspector, request)
    await found.restart(era)
    return found.shown()


class After(Struct, frozen=True, forbid_unknown_fields=True):
    """The query for entries of the wire.

    Attributes:
        after: The number of the last entry that the page has received.
        version: The version of the state that the page has; a newer version ends the waiting.
        limit: The maximum number of entries to return.
        wait: Seconds to wait for a new entry.
        whole: Whether to return long texts uncut.
    """

    after: Annotated[int, Meta(ge=0)] = 0
    version: int = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 500
    wait: Annotated[float, Meta(ge=0, le=WAIT)] = 0.0
    whole: bool = False


async def get_wire(inspector: Inspector, request: ApiRequest) -> JsonObject:
    """Return the wire's entries after a number; wait for a new entry if the query allows it.

    While a page waits, the server is restarted if its source files change.
    """
    query: After = request.query
    found = _found(inspector, request)
    deadline = monotonic() + query.wait
    while found.wire.last <= query.after and found.version == query.version:
        left = deadline - monotonic()
        if left <= 0 or inspector.is_closing or found.connection.state == "closed":
            break
        await found.wire.wait(query.after, min(left, LOOK_EVERY))
        await found.connection.restart_if_changed()
    entries = found.wire.since(query.after, query.limit)
    return {
        "entries": [each.shown(whole=query.whole) for each in entries],
        "dropped": found.wire.dropped,
        "version": found.version,
    }


async def record(inspector: Inspector, request: ApiRequest) -> LineStream:
    """Return all kept entries of the wire, one JSON object per line."""
    entries = _found(inspector, request).wire.entries()

    async def lines() -> AsyncGenerator[bytes, None]:
        for each in entries:
            yield msgspec.json.encode(each) + b"\n"

    return LineStream(lines())


class Sending(Struct, frozen=True, forbid_unknown_fields=True):
    """The body that describes a request to send to the server.

    Attributes:
        method: The MCP method.
        params: The request's params, without `_meta`.
        checks: Whether to refuse arguments that violate the tool's schema.
        app: Whether the server's app makes the call; the tool must then permit apps.
    """

    method: Annotated[str, Meta(min_length=1, max_length=200)]
    params: JsonObject = {}
    checks: bool = True
    app: bool = False


async def send(inspector: Inspector, request: ApiRequest) -> JsonObject:
    """Send a request to the server, and return how it ended."""
    given: Sending = request.body
    found = _found(inspector, request)
    if given.app and not _may_call(found, given):
        raise not_found("the app's server has no such tool for apps")
    try:
        return await found.send(given.method, given.params, checks=given.checks, by_app=given.app)
    except InvalidArguments as error:
        raise Problem(422, "bad_params", str(error)) from None


def _may_call(found: Inspection, given: Sending) -> bool:
    return given.method == "tools/call" and found.is_for_apps(str(given.params.get("name")))


class ResultQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query for a part of a large result.

    Attributes:
        call: The call's id.
        pointer: The JSON pointer of a value in the result; "" for the result.
        offset: The characters or members of the value that the page has.
        whole: Whether to return all of the result.
    """

    call: str
    pointer: str = ""
    offset: Annotated[int, Meta(ge=0)] = 0
    whole: bool = False


async def get_result(inspector: Inspector, request: ApiRequest) -> JsonObject:
    """Return a part of a large result, and where the next parts begin."""
    query: ResultQuery = request.query
    result = _found(inspector, request).result(query.call)
    if query.whole:
        return {"result": result}
    try:
        part = ResultPart(result, query.pointer, query.offset)
    except LookupError:
        raise not_found("the result has no such value") from None
    return {"result": part.value, "cuts": part.cuts}


class ToolBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body that names a tool."""

    tool: str


async def open_app(inspector: Inspector, request: ApiRequest) -> JsonObject:
    """Return the URL of a tool's app; the URL works once."""
    app = await _found(inspector, request).app(request.body.tool)
    document = app.pop("document")
    return app | {"path": inspector.tickets.path_of(document.body, document.policy)}


class Named(Struct, frozen=True, forbid_unknown_fields=True):
    """The body that names a call."""

    call: str


async def stop(inspector: Inspector, request: ApiRequest) -> None:
    """Stop a running call."""
    if not _found(inspector, request).stop(request.body.call):
        raise not_found("no such call is running")


class ArgumentsBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body with a tool and arguments, to check them or to export the call as text."""

    tool: str
    arguments: JsonObject


async def check(inspector: Inspector, request: ApiRequest) -> JsonObject:
    """Check arguments against a tool's schema; return the problems that a call would report."""
    given: ArgumentsBody = request.body
    return {"problems": _found(inspector, request).problems(given.tool, given.arguments)}


async def texts(inspector: Inspector, request: ApiRequest) -> JsonObject:
    """Return a call as Python code, as a shell command and as a test."""
    given: ArgumentsBody = request.body
    found = _found(inspector, request)
    return inspect_texts.of_call(found, given.tool, given.arguments)


class AnswerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an answer to a server's question or to an approval."""

    question: str
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None


async def answer(inspector: Inspector, request: ApiRequest) -> None:
    """Answer a server's question, or decide about a call that waits for approval."""
    given: AnswerBody = request.body
    found = _found(inspector, request)
    asked = next((each for each in found.shown()["asks"] if each["id"] == given.question), None)
    if asked is None:
        raise not_found("no such question is open")
    form = asked.get("params", {}).get("requestedSchema")
    if given.action == "accept" and form is not None:
        try:
            problems = schema.compile(encode(form), member="field").errors(given.content)
        except SchemaError:
            problems = []  # the server must check the answer
        if problems:
            raise Problem(422, "bad_answer", "; ".join(problems)[:500])
    answered: JsonObject = {"action": given.action}
    if given.action == "accept" and given.content is not None:
        answered["content"] = given.content
    if not found.answer(given.question, answered):
        raise not_found("no such question is open")


def routes(scope: str) -> tuple[Route, ...]:
    """Return the inspector's routes, which require a scope."""
    one = "/api/inspect/{id}"
    table: tuple[tuple[str, str, Any, str, Any, Any], ...] = (
        ("GET", "/api/inspect", list_servers, "the servers that can be inspected", None, None),
        ("POST", "/api/inspect", begin, "a connection of its own to a server", None, Wanted),
        ("GET", one, get_state, "the server, its lists, and the calls so far", None, None),
        ("DELETE", one, end, "ends it", None, None),
        ("POST", f"{one}/restart", restart, "connects again, in another era", None, RestartBody),
        ("GET", f"{one}/wire", get_wire, "what has passed since", After, None),
        ("GET", f"{one}/record", record, "all that is kept of the wire", None, None),
        ("POST", f"{one}/send", send, "a request to the server", None, Sending),
        ("GET", f"{one}/result", get_result, "a part of a large result", ResultQuery, None),
        ("POST", f"{one}/app", open_app, "opens the app of a tool", None, ToolBody),
        ("POST", f"{one}/stop", stop, "stops a call", None, Named),
        ("POST", f"{one}/check", check, "what is wrong with arguments", None, ArgumentsBody),
        ("POST", f"{one}/texts", texts, "a call as Python, command and test", None, ArgumentsBody),
        ("POST", f"{one}/answer", answer, "answers a question of the server", None, AnswerBody),
    )
    return tuple(
        Route(method, path, scope, handle, about, query, body)
        for method, path, handle, about, query, body in table
    )
