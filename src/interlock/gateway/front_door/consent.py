"""The decision of a person: what the page shows, and the code that follows from Allow.

        POST /api/authorize          what a request asks for, for the page to show
        POST /api/authorize/decide   Allow or Deny; returns where the browser goes

1. Both need a session of the pages: a key or a cookie alone decides nothing.
2. `seen` is a keyed hash over all that was shown, the request and the session. A decision is
   refused unless exactly that would be shown now. So nobody else can send a decision, and a page
   that was changed meanwhile must be looked at again.
3. A person decides each time; no decision is remembered.
"""

from __future__ import annotations

import hmac

import msgspec
from msgspec import Struct

from interlock.auth import Principal
from interlock.auth.key_format import digest
from interlock.auth.page_session import PAGE_KEY
from interlock.auth.stored_key import TENANT
from interlock.calls import Caller
from interlock.errors import AuthRequired
from interlock.gateway.front_door import redirects
from interlock.gateway.front_door.clients import FrontClient
from interlock.gateway.front_door.door_parts import DoorParts
from interlock.gateway.front_door.request import (
    AuthorizationAsked,
    OAuthError,
    answer_url,
    check_request,
    granted,
    read_query,
)
from interlock.gateway.front_door.tokens import MICROS, Decided, TokenIssuer, authorization_of
from interlock.server.http.json_api import ApiRequest, Problem, Route, not_found
from interlock.types import JsonObject

WINDOW = 600  # seconds for which what was shown can be decided
WITHOUT_RECHECK = 7 * 86_400.0  # seconds, if the issuer cannot be asked again about the person
MAX_LISTED = 200  # tools that the page lists by name


class AskedQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request for what a page shows: the query of `/authorize`."""

    query: str


class ConsentDecision(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a decision.

    Attributes:
        query: The query of `/authorize`.
        seen: From the answer that the page has shown.
        allow: Whether the person allows it.
        scopes: The scopes that the person left ticked; None for all that were shown.
    """

    query: str
    seen: str
    allow: bool
    scopes: list[str] | None = None


class _Checked(Struct, frozen=True):
    """An authorization request that may be shown to a person."""

    client: FrontClient
    asked: AuthorizationAsked
    scopes: tuple[str, ...]


class Consent:
    """Shows people what clients ask for, and turns their decisions into codes.

    Args:
        parts: The shared parts of the front door.
        tokens: Makes the codes.
    """

    def __init__(self, parts: DoorParts, tokens: TokenIssuer) -> None:
        self._clients = parts.clients
        self._store = parts.store
        self._keys = parts.keys
        self._rechecks = parts.rechecks
        self._gateway = parts.gateway
        self._resources = parts.gateway.resources
        self._note = parts.gateway.recorder.client_decided
        self._wall = parts.wall
        self._secret = parts.secret.derive("consent")
        self._tokens = tokens

    async def opened(self, raw: str, caller: str) -> tuple[dict[str, str], FrontClient, str]:
        """Return what a query asks, with its client and the client's redirect URI.

        Args:
            raw: The query of `/authorize`.
            caller: The IP address of the caller.

        Raises:
            OAuthError: The request, its client or its redirect URI is refused.
        """
        query = read_query(raw)
        client = await self._clients.find(query.get("client_id", ""), caller=caller)
        return query, client, client.check_redirect(query.get("redirect_uri", ""))

    # The routes

    async def show(self, request: ApiRequest) -> JsonObject:
        """Return all that a person must know to decide."""
        raw = request.body.query
        return await self._shown(raw, await self._check(raw, request), request)

    async def decide(self, request: ApiRequest) -> JsonObject:
        """Allow or deny a request; return where the browser takes the answer."""
        decision, person = request.body, request.principal
        checked = await self._check(decision.query, request)
        shown = await self._shown(decision.query, checked, request)
        now = self._window(self._wall())
        if not any(
            hmac.compare_digest(decision.seen, self._seal(shown, decision.query, request, window))
            for window in (now, now - 1)
        ):
            text = "what was shown has changed: look at it again, and then decide"
            raise Problem(409, "request_changed", text)
        client, asked = checked.client, checked.asked
        issuer = self._resources().issuer
        if not decision.allow:
            self._note("denied", person, client.id)
            text = "the person did not allow it"
            refused = {"error": "access_denied", "error_description": text}
            return {"location": answer_url(asked.redirect_uri, issuer, asked.state, **refused)}
        scopes = checked.scopes
        if decision.scopes is not None:
            scopes = tuple(each for each in scopes if each in decision.scopes)
        if not scopes:
            raise Problem(400, "bad_request", "leave at least one scope ticked, or deny")
        decided = await self._decided(checked, scopes, person)
        code = await self._tokens.issue_code(decided, self._rechecks.described(person))
        self._note("allowed", person, client.id)
        return {"location": answer_url(asked.redirect_uri, issuer, asked.state, code=code)}

    async def list_mine(self, request: ApiRequest) -> JsonObject:
        """Return what the caller has allowed, the newest first."""
        person, now = request.principal, self._wall()
        mine = await self._store.list(user=person.id, tenant=_tenant(person), active_at=now)
        return {"clients": [each.as_json(now) for each in mine]}

    async def disconnect(self, request: ApiRequest) -> None:
        """End one of the caller's authorizations."""
        person, stored = request.principal, await self._store.get(request.path["id"])
        if stored is None or (stored.user, stored.tenant) != (person.id, _tenant(person)):
            raise not_found("no such authorization")
        await self._tokens.end([stored], "revoked")

    # What is asked for

    async def _check(self, raw: str, request: ApiRequest) -> _Checked:
        if request.http.header(PAGE_KEY) is None:
            text = "only a session of the pages can decide"
            raise AuthRequired(text, 401, reason="no_credential")
        try:
            return await self._checked(raw, request)
        except OAuthError as error:
            raise Problem(400, error.error, error.text) from None

    async def _checked(self, raw: str, request: ApiRequest) -> _Checked:
        person = request.principal
        query, client, uri = await self.opened(raw, request.http.address)
        asked = check_request(query, uri, self._resources())
        if person.view and person.view != asked.view:
            # Without a resource, a key that is bound to a view means this view.
            if asked.view or query.get("resource"):
                text = f"your key is for the view {person.view!r} only"
                raise OAuthError("invalid_target", text)
            asked = msgspec.structs.replace(asked, view=person.view)
        scopes = granted(asked.scopes, person.scopes)
        if not scopes:
            text = f"this gateway has no tool that {person.id} may use; ask its operator"
            raise Problem(403, "nothing_granted", text)
        return _Checked(client, asked, scopes)

    async def _shown(self, raw: str, checked: _Checked, request: ApiRequest) -> JsonObject:
        person, client, asked = request.principal, checked.client, checked.asked
        caller = msgspec.structs.replace(
            person, scopes=frozenset(checked.scopes), view=asked.view or person.view
        )
        tools, _ = await self._gateway.list_tools(Caller(caller))
        writes = [each["address"] for each in tools if each.get("risk") != "read"]
        before = await self._store.list(user=person.id, client=client.id, tenant=_tenant(person))
        names = [person.claims.get(name) for name in ("name", "email")]
        shown: JsonObject = {
            "client": described(client, asked.redirect_uri),
            "user": person.id,
            "names": [each for each in names if isinstance(each, str)],
            "scopes": list(checked.scopes),
            "resource": self._resources().url_of(asked.view),
            "view": asked.view or None,
            "tools": {
                "all": len(tools),
                "write": len(writes),
                "names": [each["address"] for each in tools][:MAX_LISTED],
                "writes": writes[:MAX_LISTED],
            },
            "before": bool(before),
        }
        window = self._window(self._wall())
        # Not part of what is decided: a tool asks for a missing credential later, too.
        connect = await self._gateway.missing(Caller(caller))
        return shown | {"connect": connect, "seen": self._seal(shown, raw, request, window)}

    def _window(self, now: int) -> int:
        return now // (WINDOW * MICROS)

    def _seal(self, shown: JsonObject, raw: str, request: ApiRequest, window: int) -> str:
        page_key = request.http.header(PAGE_KEY) or ""
        of_all = {name: each for name, each in shown.items() if name not in ("seen", "connect")}
        parts = (of_all, raw, request.principal.identity, digest(page_key).hex(), window)
        return hmac.digest(self._secret, msgspec.json.encode(parts), "sha256").hex()

    # What follows

    async def _decided(
        self, checked: _Checked, scopes: tuple[str, ...], person: Principal
    ) -> Decided:
        longest = self._gateway.own.sign_in
        if not person.key_id and not await self._rechecks.can_ask(person):
            longest = min(longest, WITHOUT_RECHECK)
        now = self._wall()
        ends = now + int(longest * MICROS)
        key = self._keys.by_id(person.key_id) if person.key_id else None
        if key is not None and key.stored.expires is not None:
            ends = min(ends, key.stored.expires)
        asked = checked.asked
        allowed = authorization_of(
            checked.client, person, view=asked.view, scopes=scopes, expires=ends, now=now
        )
        return Decided(asked.redirect_uri, asked.challenge, allowed)


def described(client: FrontClient, redirect_uri: str) -> JsonObject:
    """Return what a page says about a client, and where its answer goes."""
    place = redirects.place_of(redirect_uri)
    is_app = place.endswith(":")
    if is_app:
        named = f"the app on this computer that opens {place} links"
    else:
        named = "a program on this computer" if place == "localhost" else place
    return {
        "id": client.id,
        "name": client.name,
        "verified": client.verified or None,
        "place": named,
        "local": is_app or place == "localhost",
    }


def _tenant(principal: Principal) -> str:
    return principal.tenant or TENANT


ROUTES = (
    Route(
        "POST",
        "/api/authorize",
        "any",
        Consent.show,
        "what an OAuth client asks of the caller, for the page that decides about it",
        body=AskedQuery,
    ),
    Route(
        "POST",
        "/api/authorize/decide",
        "any",
        Consent.decide,
        "allows or denies what an OAuth client asks for; returns where the browser goes",
        body=ConsentDecision,
    ),
    Route(
        "GET",
        "/me/clients",
        "any",
        Consent.list_mine,
        "the OAuth clients that the caller has allowed",
    ),
    Route(
        "DELETE",
        "/me/clients/{id}",
        "any",
        Consent.disconnect,
        "ends what the caller allowed to a client",
    ),
)
