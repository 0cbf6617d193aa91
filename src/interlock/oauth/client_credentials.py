"""Logging in without a person: a client that an authorization server trusts by itself."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from interlock.errors import AuthError, ConfigError
from interlock.oauth.challenges import bearer_challenge
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.identity import check_issuer
from interlock.oauth.scopes import scopes_to_ask
from interlock.oauth.storage import TokenStore
from interlock.oauth.token_source import TokenSource, discovery_from, run_to_completion


def place_of(client_id: str, server_url: str) -> str:
    """Give where a store has a client's tokens: apart from a person's, whose login they are not."""
    return f"{server_url}#{client_id}"


class ClientCredentials(TokenSource):
    """Authorization for one server by a client's own secret or private key.

    Args:
        server_url: The MCP endpoint, as it is asked.
        client: With a secret, or a private key.
        scopes: To ask for, instead of all that the server supports.
        store: Keeps tokens.
        fetcher: Asks addresses that servers name; None makes one for `server_url`.

    Raises:
        ConfigError: A client without secret and key, or a server without https.
    """

    _client: ClientIdentity

    def __init__(
        self,
        server_url: str,
        *,
        client: ClientIdentity,
        store: TokenStore,
        scopes: Sequence[str] = (),
        fetcher: Fetcher | None = None,
    ) -> None:
        super().__init__(server_url, store, scopes, fetcher, client)
        self._place = place_of(client.id, server_url)
        if not client.secrets:
            raise ConfigError(f"client {client.id!r} needs a secret or a private key")

    async def _renew(self, error: AuthError) -> None:
        if await self._adopt(error.token_used):
            return
        challenge = bearer_challenge(error.challenge)
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
        grant = {"grant_type": "client_credentials"}
        if scopes:
            grant["scope"] = " ".join(scopes)
        async with self._store.lock(self._place):
            if await self._adopt(refused):
                return
            client = await check_issuer(self._client, found, self._place, self._store)
            self._asked = found.issuer, scopes
            refusal = await run_to_completion(self._redeem(found, client, grant, " ".join(scopes)))
        if refusal is not None:
            raise refusal.error
