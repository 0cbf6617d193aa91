"""The admin API's routes for definitions of tools, prompts and servers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from interlock.errors import DefinitionChanged
from interlock.gateway.admin.operations import BASE, Limit, Operations, PageQuery, page_of
from interlock.gateway.definitions.decisions import Definitions, Record, as_json, decision_of
from interlock.server.http.json_api import ApiRequest, JsonReply, Problem, Route, not_found
from interlock.store.database.claims import Claim
from interlock.store.pin import Pin
from interlock.store.pins import Change, PinStore
from interlock.types import JsonObject

ITSELF = "-"  # in paths, the server itself: its launch command and instructions


class PinQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    """The filter for a list of definitions."""

    server: str = ""
    state: Literal["", "accepted", "changed", "new", "gone"] = ""
    limit: Limit = 500


class PinDecisionBody(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The body of a decision, with the hash of the definition that the operator saw."""

    hash: str
    risk_from_hints: bool = False


async def list_pins(gate: Operations, request: ApiRequest) -> JsonReply:
    """Return a page of definitions with their states."""
    wanted: PinQuery = request.query
    found = [
        as_json(each)
        for each in await _definitions(gate, request).list(wanted.server or None)
        if not wanted.state or each.state == wanted.state
    ]
    return page_of(
        found,
        wanted,
        request,
        lambda each: f"{each['kind']} {each.get('tool', each['server'])}",
    )


async def show(gate: Operations, request: ApiRequest) -> list[JsonObject]:
    """Return the accepted and the offered definition, with differences, of a tool or prompt."""
    definitions = _definitions(gate, request)
    return [definitions.shown(each).as_json() for each in await _named(request, definitions)]


async def accept(gate: Operations, request: ApiRequest) -> JsonObject:
    """Accept the definition that the operator saw."""
    definitions, given = _definitions(gate, request), request.body
    pin = await _decided(gate, request, definitions)
    try:
        after = await definitions.accept(pin, given.hash, risk_from_hints=given.risk_from_hints)
    except DefinitionChanged:
        raise _changed() from None
    await gate.services.pins.obey(pin.server)
    return as_json(after)


async def reject(gate: Operations, request: ApiRequest) -> JsonObject | None:
    """Reject the definition that the operator saw; delete the pin if its item was removed."""
    definitions = _definitions(gate, request)
    pin = await _decided(gate, request, definitions)
    try:
        after = await definitions.reject(pin, request.body.hash)
    except DefinitionChanged:
        raise _changed() from None
    await gate.services.pins.obey(pin.server)
    return None if after is None else as_json(after)


def _definitions(gate: Operations, request: ApiRequest) -> Definitions:
    store, record = PinStore(gate.services.database), _recording(gate, request)
    return Definitions(store, by=request.principal.id, record=record)


def _recording(gate: Operations, request: ApiRequest) -> Record | None:
    trail = gate.services.trail
    if trail is None:
        return None

    async def record(decision: str, claim: Claim | None, changes: Sequence[Change]) -> None:
        (change,) = changes  # only an import changes several pins, and no route imports
        body, server, tool = decision_of(decision, change)
        about = {"surface": "api", **body}
        await trail.record("pin", about, request.principal, server=server, tool=tool, claim=claim)

    return record


async def _named(request: ApiRequest, definitions: Definitions) -> list[Pin]:
    server, name = request.path["server"], request.path["name"]
    pins = await definitions.list(server)
    found = [each for each in pins if each.kind != "server" and each.name == name]
    if not found and name == ITSELF:
        found = [each for each in pins if each.kind == "server"]
    if not found:
        raise not_found("no definition has this name")
    return found


async def _decided(gate: Operations, request: ApiRequest, definitions: Definitions) -> Pin:
    """Return the pin whose definition has the hash that the operator saw."""
    if gate.parts.settings.lock.mode == "strict":
        text = "definitions are accepted in the lock file, which is not changed over HTTP"
        raise Problem(409, "lock_strict", text)
    for each in await _named(request, definitions):
        if request.body.hash in (each.seen_hash, each.hash):
            return each
    raise _changed()


def _changed() -> Problem:
    return Problem(
        409, "definition_changed", "the server now offers another definition; compare it first"
    )


_ONE = f"{BASE}/lock/{{server}}/{{name*}}"
ROUTES = (
    Route(
        "GET",
        f"{BASE}/lock",
        "admin:read",
        list_pins,
        "definitions with their states, such as changed",
        query=PinQuery,
    ),
    Route(
        "POST",
        f"{_ONE}/accept",
        "admin:write",
        accept,
        "accepts the definition with the hash that was shown",
        body=PinDecisionBody,
    ),
    Route(
        "POST",
        f"{_ONE}/reject",
        "admin:write",
        reject,
        "rejects it",
        body=PinDecisionBody,
    ),
    Route(
        "GET",
        _ONE,
        "admin:read",
        show,
        "both definitions of a tool or prompt and their differences; `-` for the server itself",
    ),
)
