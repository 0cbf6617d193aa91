"""TokenIssuer for programs without a person at a browser: by a key, or by an issuer's statement.

        client_credentials      the id and the text of an API key are the client's id and secret
        jwt-bearer              an ID-JAG of a client, or a workload's own token

Such a token has no refresh token: the program asks again with what it has.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from interlock.auth.access_token import LIFETIME
from interlock.auth.principal import Principal
from interlock.gateway.front_door.assertions import Assertions
from interlock.gateway.front_door.client_authentication import ProvenClient
from interlock.gateway.front_door.clients import FrontClient
from interlock.gateway.front_door.door_parts import DoorParts
from interlock.gateway.front_door.request import OAuthError, granted, scopes_in
from interlock.gateway.front_door.tokens import MICROS, TokenIssuer, authorization_of
from interlock.types import JsonObject


class Machines:
    """Issues tokens for programs.

    Args:
        parts: The shared parts of the front door.
        tokens: Issues the tokens.
        assertions: Verifies issuers' statements.
    """

    def __init__(self, parts: DoorParts, tokens: TokenIssuer, assertions: Assertions) -> None:
        self._keys = parts.keys
        self._rechecks = parts.rechecks
        self._resources = parts.gateway.resources
        self._wall = parts.wall
        self._tokens = tokens
        self._assertions = assertions

    async def by_key(self, form: Mapping[str, str]) -> JsonObject:
        """Return a token for an API key, whose id and text are the client's id and secret.

        Raises:
            OAuthError: The key is not valid.
        """
        id, text = form.get("client_id", ""), form.get("client_secret", "")
        given = text.encode(errors="surrogateescape")
        known = self._keys.find(given)
        if known is None and (lookup := self._keys.look_up(given)) is not None:
            await lookup
            known = self._keys.find(given)
        if (
            known is None
            or not hmac.compare_digest(known.stored.id.encode(), id.encode())
            or not self._keys.is_active(known)
        ):
            text = "client_id and client_secret must be the id and the text of a valid API key"
            raise OAuthError("invalid_client", text, 401)
        principal = known.principal
        name = known.stored.name or f"key {known.stored.id}"
        client = FrontClient(id=f"key:{known.stored.id}", name=name, redirects=())
        resource = form.get("resource", "") or self._resources().url_of(principal.view)
        return await self._grant(principal, client, resource, form)

    async def by_statement(self, form: Mapping[str, str], proven: ProvenClient) -> JsonObject:
        """Return a token for a person, whom an issuer's ID-JAG lets a client act for.

        Raises:
            OAuthError: The statement is not valid.
        """
        assertion = form.get("assertion", "")
        person, claims = await self._assertions.person(assertion, "id-jag", proven.client.id)
        form = {**form, "scope": self._scopes_of(form, claims)}
        return await self._grant(person, proven.client, self._resource_of(form, claims), form)

    async def by_workload(self, form: Mapping[str, str]) -> JsonObject:
        """Return a token for a workload, which its platform has described.

        Raises:
            OAuthError: The statement is not valid.
        """
        workload, claims = await self._assertions.person(form.get("assertion", ""), "workload")
        client = FrontClient(id=f"workload:{workload.id}", name=workload.id, redirects=())
        return await self._grant(workload, client, self._resource_of(form, claims), form)

    def _resource_of(self, form: Mapping[str, str], claims: JsonObject) -> str:
        """Return the resource of the statement, if it names one; the request may repeat it."""
        stated, asked = claims.get("resource"), form.get("resource", "")
        told = stated if isinstance(stated, str) else ""
        if told and asked and self._view(told) != self._view(asked):
            raise OAuthError("invalid_target", "the assertion is for another resource")
        return told or asked

    def _scopes_of(self, form: Mapping[str, str], claims: JsonObject) -> str:
        """Return the requested scopes, within those of the statement."""
        stated, asked = claims.get("scope"), scopes_in(form)
        if not isinstance(stated, str):
            return " ".join(asked)
        narrowed = granted(asked, stated.split())
        if not narrowed:
            raise OAuthError("invalid_scope", "the assertion allows none of these scopes")
        return " ".join(narrowed)

    def _view(self, resource: str) -> str:
        return self._resources().view_of(resource)

    async def _grant(
        self, principal: Principal, client: FrontClient, resource: str, form: Mapping[str, str]
    ) -> JsonObject:
        view = self._view(resource)
        if principal.view and principal.view != view:
            text = f"the key is for the view {principal.view!r} only"
            raise OAuthError("invalid_target", text)
        scopes = granted(scopes_in(form), principal.scopes)
        if not scopes:
            raise OAuthError("invalid_scope", f"{principal.id} may have none of these scopes")
        if not principal.key_id:
            await self._rechecks.stated(principal)
        now = self._wall()
        expires = now + LIFETIME * MICROS
        made = authorization_of(
            client, principal, view=view, scopes=scopes, expires=expires, now=now
        )
        return await self._tokens.grant(made, is_shared=not client.redirects)
