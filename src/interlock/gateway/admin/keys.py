"""The admin API's routes for API keys: create, narrow, rotate and revoke."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from interlock.auth.stored_key import READ_ONLY, KeyState, StoredKey
from interlock.config.section import parse_duration
from interlock.errors import InvalidArguments, KeyEnded, UnknownKey
from interlock.gateway.admin.key_rights import (
    LIMITS,
    change_of,
    lifetime_of,
    narrowed,
    rights_problem,
    user_problem,
)
from interlock.gateway.admin.operations import BASE, Operations, PageQuery, page_of
from interlock.server.http.json_api import ApiRequest, JsonReply, Problem, Route, not_found
from interlock.store.database.recorded import Record
from interlock.text.timestamps import now_micros
from interlock.types import JsonObject

Text = Annotated[str, Meta(max_length=200)]
Count = Annotated[int, Meta(ge=1)]


class KeyQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    """The query parameters for a list of keys."""

    user: str = ""
    state: KeyState | Literal[""] = ""


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to create a key; `expires` is a duration like "90d", or "never"."""

    user: Text
    name: Text = ""
    scopes: tuple[Text, ...] = READ_ONLY
    expires: str = "365d"
    view: str = ""
    rate: str = ""
    burst: Count | None = None
    concurrent: Count | None = None
    perDay: Count | None = None  # noqa: N815 - as in the configuration


class KeyChange(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to narrow a key; omitted members keep their values."""

    name: Text | UnsetType = UNSET
    scopes: tuple[Text, ...] | UnsetType = UNSET
    expires: str | UnsetType = UNSET
    view: str | UnsetType = UNSET
    rate: str | UnsetType = UNSET
    burst: Count | UnsetType = UNSET
    concurrent: Count | UnsetType = UNSET
    perDay: Count | UnsetType = UNSET  # noqa: N815 - as in the configuration


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to rotate a key: for how long the old key stays valid."""

    overlap: str = "24h"


async def list_keys(gate: Operations, request: ApiRequest) -> JsonReply:
    """Return a page of the keys, oldest first."""
    wanted: KeyQuery = request.query
    user = wanted.user.removeprefix("user:")
    found = [
        shown
        for each in await gate.keys.list()
        if (not user or each.user == user)
        and (not wanted.state or each.state(now_micros()) == wanted.state)
        for shown in [_shown(each)]
    ]
    return page_of(found, wanted, request)


async def create(gate: Operations, request: ApiRequest) -> JsonReply:
    """Create a key, and return its text, which cannot be read again."""
    given: NewKey = request.body
    user = given.user.removeprefix("user:")
    views = gate.parts.settings.views
    limits = {name: value for name in LIMITS if (value := getattr(given, name))}
    problem = user_problem(user) or rights_problem(given.scopes, given.view, limits, views)
    if problem:
        raise Problem(400, "bad_request", f"body: {problem}")
    try:
        lifetime = lifetime_of(given.expires)
    except InvalidArguments as error:
        raise Problem(400, "bad_request", f"body: {error}") from None
    stored, key = await gate.keys.create(
        user,
        name=given.name,
        scopes=given.scopes,
        view=given.view,
        limits=limits,
        lifetime=lifetime,
        created_by=request.principal.id,
        record=_recording(gate, request, "key_created"),
    )
    await gate.services.keys.use(stored)
    return JsonReply(stored.as_json(now_micros(), key), 201)


async def show(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return a key, without its text."""
    try:
        return _shown(await gate.keys.get(request.path["id"]))
    except UnknownKey:
        raise _unknown() from None


async def narrow(gate: Operations, request: ApiRequest) -> JsonObject:
    """Reduce a key's rights; to extend rights, operators create a new key."""
    given: KeyChange = request.body
    change = {
        name: value
        for name in ("name", "scopes", "expires", "view", *LIMITS)
        if (value := getattr(given, name)) is not UNSET
    }
    settings = gate.parts.settings
    try:
        _, after = await gate.keys.change(
            request.path["id"],
            lambda old: narrowed(old, change, settings, now_micros()),
            record=_recording(gate, request, "key_narrowed"),
        )
    except UnknownKey:
        raise _unknown() from None
    except KeyEnded as error:
        raise Problem(409, "key_ended", str(error)) from None
    except InvalidArguments as error:
        raise Problem(400, "not_narrower", f"body: {error}") from None
    await gate.services.keys.use(after)
    return _shown(after)


async def rotate(gate: Operations, request: ApiRequest) -> JsonReply:
    """Replace a key with a new key of the same rights, and return the new text, only this once."""
    given: Rotation = request.body
    overlap = parse_duration(given.overlap)
    if overlap is None:
        raise Problem(400, "bad_request", "body: overlap is not a time such as 24h")
    try:
        stored, key = await gate.keys.rotate(
            request.path["id"],
            overlap=overlap,
            created_by=request.principal.id,
            record=_recording(gate, request, "key_rotated"),
        )
    except UnknownKey:
        raise _unknown() from None
    except KeyEnded as error:
        raise Problem(409, "key_ended", str(error)) from None
    await gate.services.keys.use(stored)
    return JsonReply(stored.as_json(now_micros(), key), 201)


async def revoke(gate: Operations, request: ApiRequest) -> JsonObject:
    """Revoke a key, and end its calls, sessions and streams."""
    record = _recording(gate, request, "key_revoked")
    try:
        after = await gate.keys.revoke(request.path["id"], record=record)
    except UnknownKey:
        raise _unknown() from None
    await gate.services.keys.use(after)
    return _shown(after)


def _recording(gate: Operations, request: ApiRequest, action: str) -> Record | None:
    return gate.recording(request, lambda *keys: change_of(action, *keys))


def _unknown() -> Problem:
    return not_found("no key has this id")


def _shown(stored: StoredKey) -> JsonObject:
    return stored.as_json(now_micros())


_ONE = f"{BASE}/keys/{{id}}"
ROUTES = (
    Route("GET", f"{BASE}/keys", "admin:read", list_keys, "all keys, oldest first", query=KeyQuery),
    Route("POST", f"{BASE}/keys", "admin:write", create, "creates a key", body=NewKey),
    Route("GET", _ONE, "admin:read", show, "one key, without the key itself"),
    Route("PATCH", _ONE, "admin:write", narrow, "takes rights from a key", body=KeyChange),
    Route("DELETE", _ONE, "admin:write", revoke, "revokes a key"),
    Route(
        "POST",
        f"{_ONE}/rotate",
        "admin:write",
        rotate,
        "replaces a key by a new one with the same rights",
        body=Rotation,
    ),
)
