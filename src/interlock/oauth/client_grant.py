"""Tokens without a person: a program requests them itself whenever it needs new ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from time import monotonic

from interlock.errors import AuthError
from interlock.oauth.challenges import token_challenge
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.identity import check_issuer
from interlock.oauth.scopes import scopes_to_ask
from interlock.oauth.storage import TokenStore
from interlock.oauth.token_source import (
    TokenSource,
    discovery_from,
    new_key,
    run_to_completion,
)


def place_of(client_id: str, server_url: str) -> str:
    """Return the store's key for a program's tokens, apart from those of a person's login."""
    return f"{server_url}#{client_id}"


class ClientGrant(TokenSource):
    """What `ClientCredentials` and `JwtBearer` have in common."""

    _client: ClientIdentity

    def __init__(
        self,
        server_url: str,
        store: TokenStore,
        scopes: Sequence[str],
        fetcher: Fetcher | None,
        client: ClientIdentity,
    ) -> None:
        super().__init__(server_url, store, scopes, fetcher, client)
        self._place = place_of(client.id, server_url)

    @abstractmethod
    async def _grant(self, found: Discovery) -> dict[str, str]:
        """Return the members of a token request that prove our right to a token."""

    async def _renew(self, error: AuthError) -> None:
        if await self._adopt(error.token_used):
            return
        challenge = token_challenge(error.challenge)
        if error.status == 403 and not challenge.scopes:
            raise error
        found = await self._discover(challenge)
        if error.status == 403:
            scopes = self._more_scopes(error, found)
        else:
            asked = self._asked_of(found.issuer)
            scopes = scopes_to_ask(challenge, found, asked, self._scopes)
        await self._request(found, scopes, error.token_used)
        self._attempts.add(found.issuer, scopes, now=monotonic())

    async def _renew_expired(self) -> None:
        tokens = self._tokens
        if tokens is not None:
            scopes = self._asked_of(tokens.issuer)
            await self._request(discovery_from(tokens), scopes, tokens.access_token)

    async def _request(self, found: Discovery, scopes: tuple[str, ...], refused: str) -> None:
        scope = " ".join(scopes)
        async with self._store.lock(self._place):
            if await self._adopt(refused):
                return
            client = await check_issuer(self._client, found, self._place, self._store)
            grant = await self._grant(found)
            if scope:
                grant["scope"] = scope
            self._asked = found.issuer, scopes
            refusal = await run_to_completion(
                self._redeem(found, client, grant, scope, new_key(found))
            )
        if refusal is not None:
            raise refusal.error
