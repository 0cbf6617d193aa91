"""Token requests: they exchange a code, a refresh token or another grant for an access token.

RFC 6749 sections 4.1.3, 4.4 and 6, RFC 8707 (resource). Spec 2026-07-28: basic/authorization.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import TYPE_CHECKING

from msgspec import Struct

from interlock.errors import AuthError, HttpError, RedirectRefused
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import TokenAnswer, check_token, error_of, read_tokens, refusal
from interlock.oauth.fetcher import FetchedResponse, Fetcher, check_url
from interlock.oauth.identity import authenticate_client
from interlock.oauth.storage import Tokens
from interlock.text.urls import display

if TYPE_CHECKING:
    from interlock.oauth.dpop import DpopKey

# The members of a token request that error messages must not contain.
_SECRET = ("assertion", "client_assertion", "code", "code_verifier", "refresh_token")


class TokenRefused(Struct, frozen=True):
    """A final refusal of a token request: a retry would be refused as well.

    Attributes:
        code: The OAuth error code, such as "invalid_grant"; "" if the response has none.
        error: The error to raise, which names the issuer or endpoint, and the reason.
    """

    code: str
    error: AuthError | HttpError


async def request_tokens(
    fetcher: Fetcher,
    found: Discovery,
    client: ClientIdentity,
    grant: Mapping[str, str],
    scope: str = "",
    key: DpopKey | None = None,
) -> Tokens | TokenRefused:
    """Request tokens, and check the response.

    Args:
        fetcher: Sends the request once, or twice if the endpoint demands a nonce.
        found: The authorization server and the resource.
        client: The client that requests the tokens.
        grant: The `grant_type` and its parameters.
        scope: The requested scopes. They count as granted unless the response names other scopes.
        key: The key to which tokens are bound, if the endpoint supports that; None for bearer
            tokens.

    Raises:
        InterlockError: There was no response, a temporary failure, or an invalid token.
    """
    exchanged = await exchange(fetcher, found, client, grant, key)
    if isinstance(exchanged, TokenRefused):
        return exchanged
    return _tokens(*exchanged, scope)


async def exchange(
    fetcher: Fetcher,
    found: Discovery,
    client: ClientIdentity,
    grant: Mapping[str, str],
    key: DpopKey | None = None,
) -> tuple[TokenAnswer, TokenRequest] | TokenRefused:
    """Send a token request; return the response and the request that succeeded.

    Raises:
        InterlockError: There was no response, or a temporary failure.
    """
    issuer, endpoint = display(found.issuer), found.server.token_endpoint
    if not endpoint:
        raise AuthError(f"{issuer} has no token endpoint")
    check_url(endpoint, f"the token_endpoint of {issuer}")
    sent = TokenRequest(found, client, grant, endpoint, key)
    try:
        reply = await fetcher.post(endpoint, form=sent.form, headers=sent.headers)
        if nonce := _demanded_nonce(reply, key):
            # It is safe to retry, because the endpoint has not used the grant (RFC 9449 section 8).
            sent = TokenRequest(found, client, grant, endpoint, key, nonce)
            reply = await fetcher.post(endpoint, form=sent.form, headers=sent.headers)
    except RedirectRefused as refused:
        return TokenRefused("", refused)
    error = error_of(reply)  # independent of the status: some servers refuse with status 200
    if error is not None or reply.status // 100 != 2:
        what, why = f"{issuer} gave no token", refusal(reply, sent.secrets)
        if reply.status == 429 or reply.status >= 500:
            raise why.error(what, reply.status)
        if error is None:
            return TokenRefused("", why.error(what, reply.status))
        return TokenRefused(error.error, why.error(what, 403))
    try:
        return read_tokens(reply), sent
    except HttpError as unusable:
        return TokenRefused("", unusable)


def _demanded_nonce(reply: FetchedResponse, key: DpopKey | None) -> str:
    """Return the DPoP nonce that the endpoint demands; "" if it refused for another reason."""
    error = error_of(reply)
    if key is None or error is None or error.error != "use_dpop_nonce":
        return ""
    return reply.headers.get("DPoP-Nonce", "")


class TokenRequest:
    """A request to a token endpoint. Sending it again requires a new object with new signatures."""

    def __init__(
        self,
        found: Discovery,
        client: ClientIdentity,
        grant: Mapping[str, str],
        endpoint: str,
        key: DpopKey | None,
        nonce: str = "",
    ) -> None:
        self.found = found
        self.client = client
        self.endpoint = endpoint
        self.key = key
        self.form, self.headers = dict(grant), {"Accept": "application/json"}
        if found.resource:
            self.form["resource"] = found.resource
        self.method = authenticate_client(client, found, self.form, self.headers)
        if key is not None:
            self.headers["DPoP"] = key.proof("POST", endpoint, nonce=nonce)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets in the request, which error messages must not contain."""
        credentials = self.headers.get("Authorization", "").removeprefix("Basic ")
        in_form = (self.form[name] for name in _SECRET if name in self.form)
        return (credentials, *self.client.secrets, *in_form)


def _tokens(answer: TokenAnswer, sent: TokenRequest, scope: str) -> Tokens:
    issuer = display(sent.found.issuer)
    kind = "bearer" if answer.token_type is None else answer.token_type.strip().lower()
    if kind not in ("bearer", "dpop") or (kind == "dpop" and sent.key is None):
        raise AuthError(f"{issuer} issued a token whose type was not requested")
    now, lifetime = time(), answer.lifetime
    # If the response has no new refresh token, the old refresh token stays valid.
    refresh = answer.refresh_token or sent.form.get("refresh_token", "")
    return Tokens(
        access_token=check_token(answer.access_token, f"{issuer} gave a token"),
        refresh_token=check_token(refresh, f"{issuer} gave a refresh token") if refresh else "",
        expires_at=None if lifetime is None else now + lifetime,
        received_at=now,
        scope=answer.scope or scope,
        issuer=sent.found.issuer,
        resource=sent.found.resource,
        client_id=sent.client.id,
        token_endpoint=sent.endpoint,
        auth_method=sent.method,
        dpop_key=sent.key.pem if sent.key is not None and kind == "dpop" else "",
    )
