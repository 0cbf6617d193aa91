"""Logins without a user: a client with a secret or a private key of its own."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.errors import ConfigError
from interlock.oauth.client_grant import ClientGrant
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.storage import TokenStore


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
