"""The stored login for a server, for programs that cannot ask a user to log in."""

from __future__ import annotations

from collections.abc import Mapping

from interlock.errors import AuthError
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.login import OAuth
from interlock.oauth.storage import TokenStore, UserTokenStore

# The URI has no port, because a loopback redirect may use any port (RFC 8252 section 7.3).
REDIRECT_URI = "http://127.0.0.1/callback"


class StoredLogin:
    """An `Authorization` that sends an earlier login's token, and refreshes the token.

    Args:
        server_url: The URL of the MCP endpoint.
        is_expected: Whether a login should exist. If False, the store is read only after the server
            has required authentication, so that servers without logins never open the keyring.
        client: The login's client, if the operator has registered it.
        issuer: The authorization server that the operator has configured; "" if none.
        store: The store of logins; None for the store of this process's user.
        owner: The login's owner, such as the id of a principal; "" is the user who runs this
            process. A login of another owner is never used.
    """

    def __init__(
        self,
        server_url: str,
        *,
        is_expected: bool,
        client: ClientIdentity | None = None,
        issuer: str = "",
        store: TokenStore | None = None,
        owner: str = "",
    ) -> None:
        self.server_url = server_url
        self._is_needed = is_expected
        self._client = client
        self._issuer = issuer
        self._store = store
        self._owner = owner
        self._oauth: OAuth | None = None

    @property
    def token(self) -> str:
        return self._oauth.token if self._oauth is not None else ""

    async def valid_token(self) -> str:
        return await self._login().valid_token() if self._is_needed else ""

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        return self._oauth.headers(method, url) if self._oauth is not None else {}

    def needs_resend(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return whether a request was refused only because it lacked the nonce in `headers`."""
        return self._oauth is not None and self._oauth.needs_resend(status, headers)

    async def refresh_after(self, error: AuthError) -> None:
        """Load the stored token, or refresh the token that the server has refused.

        Raises:
            LoginRequired: A user must log in, or log in again.
            AuthError: The request was refused for a reason that a login would not change.
        """
        self._is_needed = True
        await self._login().refresh_after(error)

    def _login(self) -> OAuth:
        if self._oauth is None:
            store = self._store or UserTokenStore()
            self._oauth = OAuth(
                self.server_url,
                redirect_uri=REDIRECT_URI,
                ask=None,
                client=self._client,
                issuer=self._issuer,
                store=store.for_owner(self._owner),
            )
        return self._oauth
