"""Logins with a JWT from a party that the authorization server trusts.

With workload identity federation, that party is the platform: its JWT states which program runs,
and the program needs no secret. RFC 7523 section 2.1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from interlock.oauth.client_grant import ClientGrant
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.storage import TokenStore

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
