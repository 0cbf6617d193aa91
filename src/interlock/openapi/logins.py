"""Tokens for an API, obtained with a client's secret or by a user's login."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from interlock.config.openapi import ApiClient, ApiLogin
from interlock.errors import AuthError, ConfigError
from interlock.oauth.challenges import Challenge
from interlock.oauth.client_grant import ClientCredentials
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import ServerMetadata, read
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.login import Ask, OAuth
from interlock.oauth.storage import MemoryTokenStore, TokenStore
from interlock.oauth.stored_login import REDIRECT_URI
from interlock.text.quoting import echo
from interlock.text.urls import display, origin
from interlock.types import JsonObject

_OPENID = "/.well-known/openid-configuration"


def client_tokens(
    scheme: JsonObject, client: ApiClient, base_url: str, scopes: tuple[str, ...]
) -> ClientTokens:
    """Return a source of tokens for a client with a secret.

    Raises:
        ConfigError: The token URL is not on a host that the operator named.
    """
    token_url = client.token_url or _flow(scheme, "clientCredentials").get("tokenUrl", "")
    if not token_url:
        raise ConfigError('openapi.auth has a client without "tokenUrl", and the document has none')
    if not client.token_url and origin(token_url) != origin(base_url):
        raise ConfigError(
            f"the document's token URL {display(token_url)} is not on the host of baseUrl; "
            f'if it may receive the secret, add "tokenUrl": "{token_url}"'
        )
    return ClientTokens(base_url, token_url, client, client.scopes or scopes)


class ClientTokens(ClientCredentials):
    """Requests tokens with a client's secret from one token URL, and keeps them in memory.

    Args:
        base_url: The base URL of the API.
        token_url: The URL that issues the tokens.
        client: The client's id and secret.
        scopes: The scopes to request.
    """

    def __init__(
        self, base_url: str, token_url: str, client: ApiClient, scopes: tuple[str, ...]
    ) -> None:
        issuer = origin(token_url)
        super().__init__(
            base_url,
            client=ClientIdentity(id=client.client_id, secret=client.client_secret, issuer=issuer),
            store=MemoryTokenStore(),
            scopes=scopes,
            fetcher=Fetcher(token_url),
        )
        self._found = Discovery("", scopes, ServerMetadata(issuer, token_endpoint=token_url))

    async def _discover(self, challenge: Challenge) -> Discovery:  # noqa: ARG002
        return self._found


class UserLogin(OAuth):
    """A user's login for an API, at the authorization server that the security scheme names.

    Args:
        scheme: The security scheme: oauth2 with `authorizationCode`, or openIdConnect.
        login: The operator's configuration of the login.
        base_url: The base URL of the API.
        scopes: The scopes that the operations need.
        store: Keeps the tokens.
        ask: Shows the login to the user; None if this program cannot show it.
        more_scopes: Further scopes to request.
        options: Further arguments for `OAuth`.
    """

    def __init__(
        self,
        scheme: JsonObject,
        login: ApiLogin,
        base_url: str,
        scopes: tuple[str, ...],
        *,
        store: TokenStore,
        ask: Ask | None,
        more_scopes: Sequence[str] = (),
        **options: Any,
    ) -> None:
        options.setdefault("redirect_uri", REDIRECT_URI)
        client = None
        if login.client_id:
            client = ClientIdentity(id=login.client_id, secret=login.client_secret)
        super().__init__(
            base_url,
            ask=ask,
            client=client,
            scopes=(*(login.scopes or scopes), *more_scopes),
            store=store,
            **options,
        )
        self._scheme = scheme
        self._found: Discovery | None = None

    async def _discover(self, challenge: Challenge) -> Discovery:  # noqa: ARG002
        if self._found is None:
            self._found = await self._find()
        return self._found

    async def _find(self) -> Discovery:
        if self._scheme.get("type") == "openIdConnect":
            metadata = await self._published(str(self._scheme.get("openIdConnectUrl", "")))
        else:
            flow = _flow(self._scheme, "authorizationCode")
            if not flow.get("authorizationUrl") or not flow.get("tokenUrl"):
                raise AuthError("the document has no authorizationCode flow with both of its URLs")
            metadata = ServerMetadata(
                origin(flow["authorizationUrl"]),
                authorization_endpoint=flow["authorizationUrl"],
                token_endpoint=flow["tokenUrl"],
                code_challenge_methods_supported=["S256"],  # ignored by servers that lack it
            )
        return Discovery("", self._scopes or None, metadata)

    async def _published(self, url: str) -> ServerMetadata:
        reply = await self._fetcher.get(url, {"Accept": "application/json"})
        if reply.status != 200:
            raise AuthError(
                f"the login metadata at {display(url)} cannot be read (status {reply.status})",
                reply.status,
            )
        metadata = read(reply, ServerMetadata)
        if url != f"{metadata.issuer.rstrip('/')}{_OPENID}":
            issuer = echo(metadata.issuer)
            raise AuthError(f"the metadata at {display(url)} names another issuer ({issuer})")
        return metadata


def _flow(scheme: JsonObject, name: str) -> dict[str, str]:
    flows = scheme.get("flows")
    flow = flows.get(name) if isinstance(flows, dict) else None
    if not isinstance(flow, dict):
        return {}
    return {key: value for key, value in flow.items() if isinstance(value, str)}
