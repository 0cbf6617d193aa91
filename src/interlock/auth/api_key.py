"""Authentication by the header `X-API-Key`, alone or as an alternative to a bearer token."""

from __future__ import annotations

from msgspec import Struct

from interlock.auth.authenticator import Headers, values_of
from interlock.auth.bearer import BearerAuth
from interlock.auth.principal import Principal
from interlock.auth.verifier import MAX_TOKEN_BYTES, TOKEN, Verify, verified
from interlock.errors import AuthRequired

API_KEY = b"x-api-key"


class ApiKeyAuth(Struct, frozen=True, kw_only=True):
    """Authenticates callers by a key in the header `X-API-Key`.

    Attributes:
        verify: Returns a key's principal, or None if the key is not valid. If it raises an error,
            the response is 503. `static_tokens` makes such a function.
    """

    verify: Verify

    @property
    def challenge(self) -> str:
        return 'ApiKey header="X-API-Key"'

    def published(self, path: str) -> bytes | None:  # noqa: ARG002
        return None

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:  # noqa: ARG002
        """Return the principal that a request's key identifies.

        Raises:
            AuthRequired: The key is missing or invalid (401), or there are two (400).
            AuthUnavailable: The verifier failed (503).
        """
        keys = values_of(headers, API_KEY)
        if not keys:
            raise AuthRequired("an API key is required", 401, reason="no_credential")
        if len(keys) > 1:
            raise AuthRequired("more than one X-API-Key header", 400, reason="two_credentials")
        principal = None
        if len(keys[0]) <= MAX_TOKEN_BYTES and TOKEN.fullmatch(keys[0]):
            principal = await verified(self.verify, keys[0].decode())
        if principal is None:
            raise AuthRequired("the API key is not valid", 401, reason="bad_credential")
        return principal


class EitherAuth(Struct, frozen=True, kw_only=True):
    """Authenticates callers by either a bearer token or an API key, but not both at once."""

    bearer: BearerAuth
    api_key: ApiKeyAuth

    @property
    def challenge(self) -> str:
        return self.bearer.challenge

    def published(self, path: str) -> bytes | None:
        return self.bearer.published(path)

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """Return the principal that sent a request.

        Raises:
            AuthRequired: The request has both a token and a key (400), or its credential is
                refused.
        """
        names = {name for name, _ in headers}
        if API_KEY not in names:
            return await self.bearer.authenticate(headers, peer)
        if b"authorization" in names:
            raise AuthRequired(
                "both Authorization and X-API-Key are sent; send one of them",
                400,
                reason="two_credentials",
            )
        return await self.api_key.authenticate(headers, peer)
