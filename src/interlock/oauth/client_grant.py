"""Tokens without a user: the program requests new ones whenever it needs them.

`ClientCredentials` proves who the program is by a secret or a private key of its own. `JwtBearer`
has a JWT from a party that the authorization server trusts (RFC 7523 section 2.1). With workload
identity federation, that party is the platform: its JWT states which program runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

from interlock.errors import AuthError, ConfigError
from interlock.oauth.challenges import token_challenge
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.scopes import scopes_to_request
from interlock.oauth.storage import TokenStore
from interlock.oauth.token_source import (
    TokenSource,
    discovery_from,
    new_key,
    run_to_completion,
)


def client_key(client_id: str, server_url: str) -> str:
    """Return the store's key for a program's tokens, separate from those of a user's login."""
    return f"{server_url}#{client_id}"


class ClientGrant(TokenSource):
    """The `TokenSource` that `ClientCredentials` and `JwtBearer` extend."""

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
        self._key = client_key(client.id, server_url)

    @abstractmethod
    async def _grant(self, found: Discovery) -> dict[str, str]:
        """Return the members of a token request that entitle the client to a token."""

    async def _renew(self, error: AuthError) -> None:
        if await self._reload(error.token_used):
            return
        challenge = token_challenge(error.challenge)
        if error.status == 403 and not challenge.scopes:
            raise error
        found = await self._discover(challenge)
        if error.status == 403:
            scopes = self._step_up_scopes(error, found)
        else:
            before = self._requested_of(found.issuer)
            scopes = scopes_to_request(challenge, found, before, self._scopes)
        await self._request(found, scopes, error.token_used)
        self._throttle.add(found.issuer, scopes, now=monotonic())

    async def _renew_expired(self) -> None:
        tokens = self._tokens
        if tokens is not None:
            scopes = self._requested_of(tokens.issuer)
            await self._request(discovery_from(tokens), scopes, tokens.access_token)

    async def _request(self, found: Discovery, scopes: tuple[str, ...], refused: str) -> None:
        scope = " ".join(scopes)
        async with self._store.lock(self._key):
            if await self._reload(refused):
                return
            client = await self._check_issuer(self._client, found)
            grant = await self._grant(found)
            if scope:
                grant["scope"] = scope
            self._requested = found.issuer, scopes
            refusal = await run_to_completion(
                self._request_tokens(found, client, grant, scope, new_key(found))
            )
        if refusal is not None:
            raise refusal.error


class ClientCredentials(ClientGrant):
    """Authorization for one server by a client's own secret or private key.

    Args:
        server_url: The MCP endpoint that the client connects to.
        client: A client with a secret or a private key.
        scopes: The scopes to request, instead of all that the server supports.
        store: The store of tokens.
        fetcher: Sends requests to URLs that servers name; None makes one for `server_url`.

    Raises:
        ConfigError: The client has neither secret nor key, or the server has no https.
    """

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
        if not client.secrets:
            raise ConfigError(f"client {client.id!r} needs a secret or a private key")

    async def _grant(self, found: Discovery) -> dict[str, str]:  # noqa: ARG002
        return {"grant_type": "client_credentials"}


GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class JwtBearer(ClientGrant):
    """Authorization for one server by a JWT that a third party has signed.

    A refused JWT is not sent again: `AuthError` names the reason.

    Args:
        server_url: The MCP endpoint that the client connects to.
        assertion: Returns a JWT for its two arguments, an issuer and a `resource` ("" for none).
            It is called for each token request, so that it can return a new JWT.
        client: The client that sends the JWT. Set its `issuer`, the only authorization server
            that receives the JWT. Without it, the first one that the server names receives it.
        scopes: The scopes to request, instead of all that the server supports.
        store: The store of tokens.
        fetcher: Sends requests to URLs that servers name; None makes one for `server_url`.

    Raises:
        ConfigError: The server has no https.
    """

    def __init__(
        self,
        server_url: str,
        *,
        assertion: Callable[[str, str], Awaitable[str]],
        client: ClientIdentity,
        store: TokenStore,
        scopes: Sequence[str] = (),
        fetcher: Fetcher | None = None,
    ) -> None:
        super().__init__(server_url, store, scopes, fetcher, client)
        self._assertion = assertion

    async def _grant(self, found: Discovery) -> dict[str, str]:
        assertion = await self._assertion(found.issuer, found.resource)
        return {"grant_type": GRANT_TYPE, "assertion": assertion}
