"""Authentication by a bearer token or an API key."""

from __future__ import annotations

from msgspec import Struct

from interlock.auth.api_key import API_KEY, ApiKeyAuth
from interlock.auth.authenticator import Headers
from interlock.auth.bearer import BearerAuth
from interlock.auth.principal import Principal
from interlock.errors import AuthRequired


class EitherAuth(Struct, frozen=True, kw_only=True):
    """Identifies callers by a bearer token or by an API key, but not by both at once."""

    bearer: BearerAuth
    api_key: ApiKeyAuth

    @property
    def challenge(self) -> str:
        return self.bearer.challenge

    def published(self, path: str) -> bytes | None:
        return self.bearer.published(path)

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """Return the sender of a request.

        Raises:
            AuthRequired: 400; the request has both a token and a key.
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
