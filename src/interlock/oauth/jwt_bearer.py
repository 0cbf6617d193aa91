"""Logging in with a JWT from a party that the authorization server trusts.

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
        assertion: Returns a JWT for an issuer and a `resource` ("" for none), its two
            arguments. It is called for each token request, so that it can return a new one.
        client: Sent with the JWT. Set its `issuer`: the JWT is sent only to that authorization
            server. Without it, that is the first one that the server names.
        scopes: To request, instead of all that the server supports.
        store: Keeps tokens.
        fetcher: Sends requests to URLs that servers name; None makes one for `server_url`.

    Raises:
        ConfigError: A server without https.
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
