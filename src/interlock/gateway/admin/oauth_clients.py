"""The admin API's routes for OAuth clients, and for what people have allowed to them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from interlock.errors import InterlockError, InvalidArguments
from interlock.gateway.admin.operations import BASE, Operations, PageQuery, page_of
from interlock.server.http.json_api import ApiRequest, JsonReply, Problem, Route, not_found
from interlock.store.database.claims import Claim
from interlock.store.database.recorded import Record
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.gateway.front_door.operating import ClientOperations


class AuthorizationFilter(PageQuery, frozen=True, forbid_unknown_fields=True):
    """The filter for a list of authorizations: the client's id, or "" for all."""

    client: str = ""


class ClientName(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a decision: the client's id, a host, "localhost", or "SCHEME:"."""

    client: str


async def list_clients(gate: Operations, request: ApiRequest) -> JsonReply:
    """Return a page of the clients."""
    found = await _of(gate, request).list()
    return page_of(found, request.query, request, lambda each: each["client"])


async def list_authorizations(gate: Operations, request: ApiRequest) -> JsonReply:
    """Return a page of what people have allowed, the newest first."""
    return page_of(await _of(gate, request).show(request.query.client), request.query, request)


async def block(gate: Operations, request: ApiRequest) -> JsonObject:
    """Refuse a client from now on, and end its access."""
    operations = _of(gate, request)
    ended = await operations.decide(request.body.client, "blocked")
    await _follow(gate)
    return {"client": request.body.client, "state": "blocked", "ended": ended}


async def allow(gate: Operations, request: ApiRequest) -> JsonObject:
    """Let a client ask people."""
    await _of(gate, request).decide(request.body.client, "allowed")
    await _follow(gate)
    return {"client": request.body.client, "state": "allowed"}


async def end(gate: Operations, request: ApiRequest) -> None:
    """End an authorization, with its calls, sessions and streams."""
    try:
        await _of(gate, request).revoke(id=request.path["id"])
    except InvalidArguments:
        raise not_found("no authorization has this id") from None
    await _follow(gate)


async def _follow(gate: Operations) -> None:
    """Apply a change here at once; other gateways follow within a second."""
    door = gate.services.front_door
    if door is not None:
        with suppress(InterlockError):  # the change is stored, and the next reading applies it
            await door.clients.refresh()
            await door.ring.refresh()


def _of(gate: Operations, request: ApiRequest) -> ClientOperations:
    door = gate.services.front_door
    if door is None:
        text = "clients log in here only with gateway.auth.oauth in the configuration"
        raise Problem(409, "no_front_door", text)

    from interlock.gateway.front_door.operating import ClientOperations

    def recording(body: JsonObject) -> Record | None:
        trail = gate.services.trail
        if trail is None:
            return None

        async def record(claim: Claim, *_: object) -> None:
            about = {"surface": "api", **body}
            await trail.record("client", about, request.principal, claim=claim)

        return record

    return ClientOperations(door.store, door.clients.store, recording, request.principal.id)


ROUTES = (
    Route(
        "GET",
        f"{BASE}/clients",
        "admin:read",
        list_clients,
        "the OAuth clients, with how many people use each of them",
        query=PageQuery,
    ),
    Route(
        "GET",
        f"{BASE}/authorizations",
        "admin:read",
        list_authorizations,
        "what people have allowed to OAuth clients, newest first",
        query=AuthorizationFilter,
    ),
    Route(
        "POST",
        f"{BASE}/clients/block",
        "admin:write",
        block,
        "refuses an OAuth client from now on, and ends its access",
        body=ClientName,
    ),
    Route(
        "POST",
        f"{BASE}/clients/allow",
        "admin:write",
        allow,
        "lets an OAuth client ask people",
        body=ClientName,
    ),
    Route(
        "DELETE",
        f"{BASE}/authorizations/{{id}}",
        "admin:write",
        end,
        "ends what a person allowed to an OAuth client",
    ),
)
