"""Token requests: a code, a refresh token, or who we are, for an access token.

RFC 6749 sections 4.1.3, 4.4 and 6, RFC 8707 (resource). Spec 2026-07-28: basic/authorization.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time

from msgspec import Struct

from interlock.errors import AuthError, HttpError, RedirectRefused
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import TokenAnswer, check_token, error_of, refusal
from interlock.oauth.fetcher import Fetcher, check_url, shown
from interlock.oauth.identity import authenticate_client
from interlock.oauth.storage import Tokens

# Members of a token request that must be in no message.
_SECRET = ("code", "code_verifier", "refresh_token", "client_assertion")


class TokenRefused(Struct, frozen=True):
    """The authorization server gives no token for this, and is not in trouble.

    Attributes:
        code: Such as "invalid_grant"; "" for an answer without one, such as a page for people.
        error: Names the issuer, or the endpoint, and why.
    """

    code: str
    error: AuthError | HttpError


async def request_tokens(
    fetcher: Fetcher,
    found: Discovery,
    client: ClientIdentity,
    grant: Mapping[str, str],
    scope: str = "",
) -> Tokens | TokenRefused:
    """Ask for tokens.

    Args:
        fetcher: Sends the request, once.
        found: Where to, and for which resource.
        client: Who asks.
        grant: `grant_type`, and what belongs to it.
        scope: What was asked for: it was granted, if the answer does not say otherwise.

    Raises:
        InterlockError: There was no answer, one of a server in trouble, or a token of no use.
    """
    issuer, endpoint = shown(found.issuer), found.server.token_endpoint
    if not endpoint:
        raise AuthError(f"{issuer} names no endpoint for tokens")
    check_url(endpoint, f"the token_endpoint of {issuer}")
    form, headers = dict(grant), {"Accept": "application/json"}
    if found.resource:
        form["resource"] = found.resource
    method = authenticate_client(client, found, form, headers)
    try:
        reply = await fetcher.post(endpoint, form=form, headers=headers)
    except RedirectRefused as refused:
        return TokenRefused("", refused)
    error = error_of(reply)  # some refuse with 200
    if error is not None or reply.status != 200:
        proof = headers.get("Authorization", "").removeprefix("Basic ")
        secrets = (proof, *client.secrets, *(form[name] for name in _SECRET if name in form))
        what, why = f"{issuer} gave no token", refusal(reply, secrets)
        if reply.status == 429 or reply.status >= 500:
            raise why.error(what, reply.status)
        if error is None:
            return TokenRefused("", why.error(what, reply.status))
        return TokenRefused(error.error, why.error(what, 403))
    try:
        answer = reply.json(TokenAnswer)
    except HttpError as unusable:
        return TokenRefused("", unusable)
    if answer.token_type is not None and answer.token_type.lower() != "bearer":
        raise AuthError(f"{issuer} gave a token that is no bearer token")
    now, lifetime = time(), answer.lifetime
    # An empty or missing one leaves the old one in force.
    refresh = answer.refresh_token or grant.get("refresh_token", "")
    return Tokens(
        access_token=check_token(answer.access_token, f"{issuer} gave a token"),
        refresh_token=check_token(refresh, f"{issuer} gave a refresh token") if refresh else "",
        expires_at=None if lifetime is None else now + lifetime,
        received_at=now,
        scope=answer.scope or scope,
        issuer=found.issuer,
        resource=found.resource,
        client_id=client.id,
        token_endpoint=endpoint,
        auth_method=method,
    )
