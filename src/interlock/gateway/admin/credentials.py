"""The admin API's routes for users' credentials; they never return a credential's value."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from interlock.auth.principal import principal_id
from interlock.calls import Caller
from interlock.errors import StoreError
from interlock.gateway.admin.operations import BASE, Operations, PageQuery, page_of
from interlock.gateway.logins.vault import owner_of
from interlock.server.http.json_api import ApiRequest, JsonReply, Problem, Route, not_found
from interlock.store.credentials import MAX_VALUE, Place
from interlock.text.timestamps import now_micros
from interlock.toolbox.user_credentials import Needs


class CredentialQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    """The filter for a list of credentials, by user and server."""

    user: str = ""
    server: str = ""


class OneCredential(Struct, frozen=True, forbid_unknown_fields=True):
    """The query parameters that identify the credential to delete."""

    user: str
    server: str
    name: str


class Value(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to store a value."""

    value: Annotated[str, Meta(min_length=1, max_length=MAX_VALUE)]


async def list_all(gate: Operations, request: ApiRequest) -> JsonReply:
    """Return a page of all users' credentials."""
    wanted: CredentialQuery = request.query
    user = principal_id(wanted.user) if wanted.user else ""
    found = [
        each.as_json(now_micros())
        for each in await gate.services.vault.list(user=user)
        if not wanted.server or each.place.server == wanted.server
    ]
    return page_of(
        found,
        wanted,
        request,
        lambda each: f"{each['user']} {each['server']} {each['name']}",
    )


async def delete(gate: Operations, request: ApiRequest) -> None:
    """Delete a user's credential."""
    given: OneCredential = request.query
    owner = owner_of(Place(principal_id(given.user), given.server, given.name))
    by = request.principal
    if not await gate.services.logins.delete(owner, given.server, given.name, by=by):
        raise not_found("no such credential")


async def list_own(gate: Operations, request: ApiRequest) -> object:
    """List the credentials that the caller has or lacks, with the URLs to connect."""
    caller = Caller(request.principal)
    needs = {
        name: gate.services.logins.needs(name)
        for name in gate.server.toolbox.upstreams
        if gate.parts.policy.may_use_any(caller, name)
    }
    return await gate.services.vault.states(caller.owner, needs)


async def store_own(gate: Operations, request: ApiRequest) -> None:
    """Store the caller's own value for a server that needs it."""
    server, name = request.path["server"], request.path["name"]
    if name not in _needs(gate, request).names:
        raise not_found("no server needs this value from you")
    owner, by = request.principal.owner, request.principal
    try:
        await gate.services.vault.set(owner, server, name, request.body.value, by=by)
    except StoreError as error:
        if type(error) is not StoreError:
            raise
        raise Problem(400, "bad_request", "body: the value is not valid") from None


async def delete_own(gate: Operations, request: ApiRequest) -> None:
    """Delete one of the caller's own credentials."""
    server, name = request.path["server"], request.path["name"]
    owner, by = request.principal.owner, request.principal
    if not await gate.services.logins.delete(owner, server, name, by=by):
        raise not_found("no such credential")


def _needs(gate: Operations, request: ApiRequest) -> Needs:
    server = request.path["server"]
    may_use = gate.parts.policy.may_use_any(Caller(request.principal), server)
    return gate.services.logins.needs(server) if may_use else Needs()


_OWN = "/me/credentials/{server}/{name}"
ROUTES = (
    Route(
        "GET",
        f"{BASE}/credentials",
        "admin:read",
        list_all,
        "users' credentials for servers, without their values",
        query=CredentialQuery,
    ),
    Route(
        "DELETE",
        f"{BASE}/credentials",
        "admin:write",
        delete,
        "deletes a user's credential",
        query=OneCredential,
    ),
)
OWN_ROUTES = (
    Route(
        "GET",
        "/me/credentials",
        "mcp:",
        list_own,
        "the credentials that the caller has or lacks, with the URLs to connect",
    ),
    Route("PUT", _OWN, "mcp:", store_own, "stores a value for a server", body=Value),
    Route("DELETE", _OWN, "mcp:", delete_own, "deletes a value or a login"),
)
