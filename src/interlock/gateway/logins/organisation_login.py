"""Logins at an OpenID Connect issuer, with the code flow, PKCE and a nonce.

1. The ID token is verified with the issuer's keys and fixed algorithms. It must be issued for this
   gateway's client id, and must contain the request's nonce.
2. Groups come from the ID token, or else from the issuer's userinfo endpoint.

OpenID Connect Core 1.0, sections 3.1 and 5.3.
"""

from __future__ import annotations

import secrets
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.issuers import with_groups
from interlock.auth.jwt import JwtVerifier
from interlock.auth.principal import Principal
from interlock.config.gateway import Issuer
from interlock.errors import AuthError
from interlock.gateway.logins.login_attempt import Attempt
from interlock.oauth.authorization import AuthorizationRequest, Pending, begin, is_same
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery, server_metadata
from interlock.oauth.fetcher import Fetcher, check_url
from interlock.oauth.tokens import TokenRefused, exchange
from interlock.text.urls import display
from interlock.types import JsonObject

METADATA_FRESH = 600.0  # seconds that the issuer's metadata is cached


class BegunOrganisationLogin(Struct, frozen=True):
    """A login that has begun, with the URL to which the browser is redirected."""

    url: str
    attempt: Attempt


class OidcLogin:
    """Begins and completes logins at an issuer.

    Args:
        issuer: The configured issuer. It must have a client id.
    """

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self._fetcher = Fetcher(issuer.issuer)
        self._client = ClientIdentity(
            id=issuer.client_id, secret=issuer.client_secret, issuer=issuer.issuer
        )
        self._verify = JwtVerifier(
            issuer=issuer.issuer,
            audience=issuer.client_id,
            jwks_url=issuer.jwks_url or None,
            required_claims=("nonce", "iat"),
        )
        self._found: Discovery | None = None
        self._found_at = 0.0

    async def begin(self, redirect_uri: str) -> BegunOrganisationLogin:
        """Begin a login.

        Args:
            redirect_uri: The URL of the callback, to which the issuer redirects the browser.

        Raises:
            InterlockError: The issuer is unavailable, or does not support a secure login.
        """
        found, nonce = await self._discovered(), secrets.token_urlsafe(24)
        scopes = ["openid"]
        if self.issuer.groups in (found.server.scopes_supported or ()):
            scopes.append(self.issuer.groups)
        pending = begin(
            found,
            server_url=self.issuer.issuer,
            client_id=self._client.id,
            redirect_uri=redirect_uri,
            scopes=scopes,
            nonce=nonce,
        )
        request = pending.request
        attempt = Attempt(
            *(found.issuer, redirect_uri, request.state, pending.verifier, nonce),
            requires_iss=pending.requires_iss,
        )
        return BegunOrganisationLogin(request.url, attempt)

    async def finish(self, attempt: Attempt, answer: dict[str, str]) -> Principal:
        """Complete a login, and return the user who has logged in.

        Args:
            attempt: The attempt that `begin` returned.
            answer: The query parameters of the callback.

        Raises:
            InterlockError: The issuer refused the login, the answer belongs to another login, or
                the answer cannot be verified.
        """
        request = AuthorizationRequest(
            url="",
            server_url=self.issuer.issuer,
            issuer=attempt.issuer,
            scopes=(),
            redirect_uri=attempt.redirect_uri,
            state=attempt.state,
        )
        code = Pending(
            request=request, verifier=attempt.verifier, requires_iss=attempt.requires_iss
        ).code(answer)
        found = await self._discovered()
        grant = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        exchanged = await exchange(self._fetcher, found, self._client, grant)
        if isinstance(exchanged, TokenRefused):
            raise exchanged.error
        tokens, _ = exchanged
        principal = await self._owner(tokens.id_token or "", attempt.nonce)
        if self.issuer.groups and self.issuer.groups not in principal.claims:
            more = await self._user_info(found, tokens.access_token, principal)
            principal = replace(principal, claims={**more, **principal.claims})
        issuer = self.issuer
        return with_groups(
            principal,
            issuer.groups,
            issuer.scopes,
            name=issuer.name,
            is_only=issuer.is_only,
        )

    async def _owner(self, id_token: str, nonce: str) -> Principal:
        where = display(self.issuer.issuer)
        principal = await self._verify(id_token) if id_token else None
        if principal is None:
            raise AuthError(f"{where} returned no valid ID token")
        claims = principal.claims
        if not is_same(str(claims["nonce"]), nonce):
            raise AuthError(f"{where} returned the ID token of another login")
        is_for_several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if is_for_several and claims.get("azp") != self._client.id:
            raise AuthError(f"{where} returned an ID token for another client")
        return principal

    async def _user_info(
        self, found: Discovery, access_token: str, principal: Principal
    ) -> JsonObject:
        url, where = found.server.userinfo_endpoint, display(self.issuer.issuer)
        if not url:
            return {}
        check_url(url, f"the userinfo_endpoint of {where}")
        headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
        reply = await self._fetcher.get(url, headers)
        if reply.status != 200:
            raise AuthError(f"{where} did not describe the user ({reply.status})", reply.status)
        claims: JsonObject = reply.json()
        if claims.get("sub") != principal.claims["sub"]:
            raise AuthError(f"{where} described another user than the ID token")
        return claims

    async def _discovered(self) -> Discovery:
        if self._found is None or monotonic() - self._found_at > METADATA_FRESH:
            metadata = await server_metadata(self._fetcher, self.issuer.issuer)
            self._found, self._found_at = Discovery("", None, metadata), monotonic()
        return self._found
