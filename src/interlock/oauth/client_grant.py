"""Tokens without a user: the program itself requests a new token when it needs one.

`ClientCredentials` authenticates the program with its own secret or private key. `JwtBearer` sends
a JWT from a party that the authorization server trusts (RFC 7523 section 2.1). With workload
identity federation, that party is the platform, whose JWT states which program is running.
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
from interlock.oauth.token_source import TokenSource, discovery_from, new_key, run_to_completion


def client_key(client_id: str, server_url: str) -> str:
    """Return the key under which a program's tokens are stored, apart from users' logins."""
    return f"{server_url}#{client_id}"


class ClientGrant(TokenSource):
    """The `TokenSource` that is the base of `ClientCredentials` and `JwtBearer`."""

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
        """Return the members of a token request that prove the client's right to a token."""

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
    """Authorization for one server by the client's own secret or private key.

    Args:
        server_url: The URL of the MCP endpoint, as the client connects to it.
        client: The client, with a secret or a private key.
        scopes: The scopes to request, instead of all scopes that the server supports.
        store: The store of the tokens.
        fetcher: Sends requests to URLs from servers; None for a new fetcher for `server_url`.

    Raises:
        ConfigError: The client has neither a secret nor a key, or `server_url` is not https.
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
    """Authorization for one server by a JWT that another party has signed.

    If a JWT is refused, it is not sent again, and an `AuthError` states the reason.

    Args:
        server_url: The URL of the MCP endpoint, as the client connects to it.
        assertion: Returns a JWT, given an issuer and a `resource` ("" if there is none). It is
            called for each token request, so that it can return a new JWT each time.
        client: The client that sends the JWT. Set its `issuer` to the only authorization server
            that may receive the JWT; otherwise the first server that the MCP server names receives
            it.
        scopes: The scopes to request, instead of all scopes that the server supports.
        store: The store of the tokens.
        fetcher: Sends requests to URLs from servers; None for a new fetcher for `server_url`.

    Raises:
        ConfigError: `server_url` is not https.
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
