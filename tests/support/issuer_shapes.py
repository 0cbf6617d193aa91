"""Issuers of OpenID Connect that behave as those of organisations do, with their traps.

Each refuses what the real one is reported to refuse:

- Entra: a `resource` (AADSTS9010010, microsoft/powerbi-modeling-mcp#68); its metadata names no
  PKCE methods (learn.microsoft.com/entra/identity-platform/v2-protocols-oidc).
- Okta: a scope that it does not know, and a client that does not use Basic
  (developer.okta.com/docs/reference/api/oidc).
- Google: gives a refresh token only for `access_type=offline` and `prompt=consent`, and no groups
  (developers.google.com/identity/protocols/oauth2/web-server).
- Keycloak: accepts each refresh token once, and names several audiences
  (keycloak.org/docs/latest/server_admin, "Revoke Refresh Token").
- Auth0: its identifier ends with a slash, and a claim that an action adds must be a URL
  (auth0.com/docs/secure/tokens/json-web-tokens/create-custom-claims); with rotation, it accepts
  each refresh token once (auth0.com/docs/secure/tokens/refresh-tokens/refresh-token-rotation).
"""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web
from msgspec import Struct

from tests.support.oidc import CLIENT, OidcIssuer

KNOWN_SCOPES = ("openid", "profile", "email", "offline_access")


class Shape(Struct, frozen=True, kw_only=True):
    """What distinguishes an issuer.

    Attributes:
        scopes: Which scopes its metadata names.
        refuses_resource: Whether a request with a `resource` is an error.
        refuses_unknown_scopes: Whether a request with another scope is an error.
        names_pkce: Whether its metadata names the PKCE methods.
        needs_offline: Whether it gives refresh tokens only for Google's parameters.
        once: Whether it accepts each refresh token once.
        groups: The claim of its ID tokens that lists groups; "" for none.
        ends_with_slash: Whether its identifier does.
        audiences: The audience of its ID tokens.
    """

    scopes: tuple[str, ...] = KNOWN_SCOPES
    refuses_resource: bool = False
    refuses_unknown_scopes: bool = False
    names_pkce: bool = True
    needs_offline: bool = False
    once: bool = False
    groups: str = "groups"
    ends_with_slash: bool = False
    audiences: tuple[str, ...] = (CLIENT,)


SHAPES = {
    "entra": Shape(refuses_resource=True, names_pkce=False),
    "okta": Shape(scopes=(*KNOWN_SCOPES, "groups"), refuses_unknown_scopes=True),
    "google": Shape(scopes=KNOWN_SCOPES[:3], needs_offline=True, groups=""),
    "keycloak": Shape(once=True, audiences=(CLIENT, "account")),
    "auth0": Shape(once=True, groups="https://tools.example.com/groups", ends_with_slash=True),
}


class ShapedIssuer(OidcIssuer):
    """An issuer of a shape.

    Attributes:
        shape: How it behaves.
        is_disabled: Whether it has ended the person's login.
        asked_again: How often it was asked with a refresh token.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.is_disabled = False
        self.asked_again = 0
        self._valid: set[str] = set()
        self._gives_refresh = False
        self.claims = {"name": "Anna Example", "email": "anna@example.com"}
        self.claims["aud"] = list(shape.audiences) if len(shape.audiences) > 1 else CLIENT
        self.claims["azp"] = CLIENT
        if shape.groups:
            self.claims[shape.groups] = ["support"]

    async def open(self) -> None:
        await super().open()
        if self.shape.ends_with_slash:
            self.url += "/"

    def entry(self, **more: Any) -> dict[str, Any]:
        """Return the issuer in a configuration, with the members that the front door needs."""
        groups = self.shape.groups
        scopes = {"support": ["mcp:*"]} if groups else {"*": ["mcp:*"]}
        own = {"groups": groups} if groups else {}
        return {
            "issuer": self.url,
            "clientId": CLIENT,
            "clientSecret": "issuer-secret-0123456789",
            "scopes": scopes,
            **own,
            **more,
        }

    def consented(self, url: str) -> dict[str, str]:
        """Return what the browser brings back; an error for a request that it refuses."""
        asked = dict(parse_qsl(urlsplit(url).query))
        shape, scopes = self.shape, asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        if shape.refuses_resource and "resource" in asked:
            return {"error": "invalid_request", "state": asked["state"]}
        if shape.refuses_unknown_scopes and not set(scopes) <= set(shape.scopes):
            return {"error": "invalid_scope", "state": asked["state"]}
        is_offline = (asked.get("access_type"), asked.get("prompt")) == ("offline", "consent")
        self._gives_refresh = is_offline if shape.needs_offline else "offline_access" in scopes
        return super().consented(url)

    async def _metadata(self, request: web.Request) -> web.Response:
        import json

        if self.is_down:
            return await super()._metadata(request)
        told = json.loads((await super()._metadata(request)).body or b"{}")
        told["scopes_supported"] = list(self.shape.scopes)
        told["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
        if self.shape.names_pkce:
            told["code_challenge_methods_supported"] = ["S256"]
        return web.json_response(told)

    async def _token(self, request: web.Request) -> web.Response:
        import json

        form = await request.post()
        if self.is_down:
            return web.json_response({"error": "server_error"}, status=503)
        if "resource" in form and self.shape.refuses_resource:
            return web.json_response({"error": "invalid_request"}, status=400)
        if form.get("grant_type") == "refresh_token":
            return self._again(str(form.get("refresh_token")))
        answer = await super()._token(request)
        told = json.loads(answer.body or b"{}")
        if answer.status == 200 and self._gives_refresh:
            told["refresh_token"] = self._new()
        return web.json_response(told, status=answer.status)

    def _again(self, token: str) -> web.Response:
        self.asked_again += 1
        if token not in self._valid or self.is_disabled:
            return web.json_response({"error": "invalid_grant"}, status=400)
        told = {"access_token": "access", "id_token": self.signed(**self.claims)}
        if self.shape.once:
            self._valid.remove(token)
            told["refresh_token"] = self._new()
        return web.json_response(told)

    def _new(self) -> str:
        token = secrets.token_urlsafe(12)
        self._valid.add(token)
        return token
