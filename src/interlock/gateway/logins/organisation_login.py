"""Logins at an OpenID Connect issuer, with the code flow, PKCE and a nonce.

1. The ID token is verified with the issuer's keys and fixed algorithms. It must be issued for this
   gateway's client id, and must contain the request's nonce.
2. Groups come from the ID token, or else from the issuer's userinfo endpoint.
3. No `resource` is sent, because Entra refuses it. Only scopes that the issuer offers are
   requested, because Okta refuses others.

OpenID Connect Core 1.0, sections 3.1, 5.3 and 12.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from time import monotonic

from msgspec import Struct

from interlock.auth.jwt import JwtVerifier
from interlock.auth.principal import Principal
from interlock.config.gateway import Issuer
from interlock.errors import AuthError
from interlock.gateway.logins.login_attempt import Attempt
from interlock.gateway.logins.people import person_of
from interlock.oauth.authorization import AuthorizationRequest, Pending, begin, is_same
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery, server_metadata
from interlock.oauth.documents import TokenAnswer
from interlock.oauth.fetcher import Fetcher, check_url
from interlock.oauth.tokens import TokenRefused, exchange
from interlock.text.urls import display
from interlock.types import JsonObject

METADATA_FRESH = 600.0  # seconds that the issuer's metadata is cached
GOOGLE = "https://accounts.google.com"
_OFFERED = ("profile", "email")  # scopes that are requested where the issuer offers them
# Google gives a refresh token only with these, and has no scope for it.
_GOOGLE_OFFLINE = "&access_type=offline&prompt=consent"


class BegunOrganisationLogin(Struct, frozen=True):
    """A login that has begun, with the URL to which the browser is redirected."""

    url: str
    attempt: Attempt


class SignedIn(Struct, frozen=True):
    """A person who has logged in.

    Attributes:
        principal: The person.
        refresh_token: With which the issuer can be asked about the person again; "" for none.
    """

    principal: Principal
    refresh_token: str = ""

    def __repr__(self) -> str:
        return f"SignedIn({self.principal.id!r})"


class OidcLogin:
    """Begins and completes logins at an issuer.

    Args:
        issuer: The configured issuer. It must have a client id.
        is_kept: Whether to request a refresh token, to ask the issuer about the person later.
    """

    def __init__(self, issuer: Issuer, *, is_kept: bool = False) -> None:
        self.issuer = issuer
        self._is_kept = is_kept
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
        # An ID token of a refresh need not repeat the nonce (OpenID Connect Core 1.0, 12.2).
        self._verify_again = JwtVerifier(
            issuer=issuer.issuer,
            audience=issuer.client_id,
            jwks_url=issuer.jwks_url or None,
            required_claims=("iat",),
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
        wanted = [self.issuer.groups, *_OFFERED, *(["offline_access"] if self._is_kept else [])]
        offered = found.server.scopes_supported or ()
        scopes = ["openid", *dict.fromkeys(each for each in wanted if each in offered)]
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
        is_google = self._is_kept and self.issuer.issuer == GOOGLE
        return BegunOrganisationLogin(request.url + _GOOGLE_OFFLINE * is_google, attempt)

    async def finish(self, attempt: Attempt, answer: dict[str, str]) -> SignedIn:
        """Complete a login, and return the person who has logged in.

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
        claims = (await self._owner(tokens.id_token or "", attempt.nonce)).claims
        claims = await self._complete(found, claims, tokens)
        return SignedIn(person_of(self.issuer, claims), tokens.refresh_token or "")

    async def ask_again(
        self, refresh_token: str, subject: str, keep: Callable[[str], Awaitable[None]]
    ) -> SignedIn | None:
        """Ask the issuer about a person again; None if it does not let the person go on.

        Args:
            refresh_token: From the login, or from the last answer.
            subject: The person's `sub`.
            keep: Stores a refresh token that replaces the given one. It is called before anything
                else can fail, because the issuer may accept each token once.

        Raises:
            InterlockError: The issuer does not answer, or its answer cannot be used.
        """
        found = await self._discovered()
        grant = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        exchanged = await exchange(self._fetcher, found, self._client, grant)
        if isinstance(exchanged, TokenRefused):
            if exchanged.code == "invalid_grant":
                return None
            raise exchanged.error
        tokens, _ = exchanged
        if tokens.refresh_token and tokens.refresh_token != refresh_token:
            await keep(tokens.refresh_token)
        if tokens.id_token:
            principal = await self._verify_again(tokens.id_token)
            claims = principal.claims if principal is not None else {}
        else:
            claims = await self._user_info(found, tokens.access_token, subject)
        if claims.get("sub") != subject:
            raise AuthError(f"{display(self.issuer.issuer)} described another user")
        claims = await self._complete(found, claims, tokens)
        try:
            principal = person_of(self.issuer, claims)
        except AuthError:  # the operator lets only others sign in
            return None
        return SignedIn(principal, tokens.refresh_token or refresh_token)

    async def _complete(
        self, found: Discovery, claims: JsonObject, tokens: TokenAnswer
    ) -> JsonObject:
        """Return the claims with those that only the userinfo endpoint states."""
        if self.issuer.groups and self.issuer.groups not in claims:
            more = await self._user_info(found, tokens.access_token, claims["sub"])
            return {**more, **claims}
        return claims

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

    async def _user_info(self, found: Discovery, access_token: str, subject: str) -> JsonObject:
        url, where = found.server.userinfo_endpoint, display(self.issuer.issuer)
        if not url:
            return {}
        check_url(url, f"the userinfo_endpoint of {where}")
        headers = {"Authorization": f"Bearer {access_token}", "Accept": "application/json"}
        reply = await self._fetcher.get(url, headers)
        if reply.status != 200:
            raise AuthError(f"{where} did not describe the user ({reply.status})", reply.status)
        claims: JsonObject = reply.json()
        if claims.get("sub") != subject:
            raise AuthError(f"{where} described another user than the ID token")
        return claims

    async def _discovered(self) -> Discovery:
        if self._found is None or monotonic() - self._found_at > METADATA_FRESH:
            metadata = await server_metadata(self._fetcher, self.issuer.issuer)
            self._found, self._found_at = Discovery("", None, metadata), monotonic()
        return self._found
