"""The login that is kept for a server: used by programs that cannot ask a person."""

from __future__ import annotations

from collections.abc import Mapping

from interlock.errors import AuthError
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.login import OAuth
from interlock.oauth.storage import TokenStore, UserTokenStore

# Loopback redirects may have any port (RFC 8252 section 7.3), so the port is not part of it.
REDIRECT_URI = "http://127.0.0.1/callback"


class StoredLogin:
    """Sends the token of an earlier login, renews it, and never asks anybody.

    Args:
        server_url: The MCP endpoint.
        is_expected: Whether there should be a login. Otherwise nothing is looked up until the
            server asks who we are, so that open servers cost no look into the keyring.
        client: To whom the login was given, if the operator has registered it.
        store: Where logins are kept; the user's when None.
    """

    def __init__(
        self,
        server_url: str,
        *,
        is_expected: bool,
        client: ClientIdentity | None = None,
        store: TokenStore | None = None,
    ) -> None:
        self._server_url = server_url
        self._is_wanted = is_expected
        self._client = client
        self._store = store
        self._login: OAuth | None = None

    @property
    def token(self) -> str:
        """The token to send now, "" for none."""
        return self._login.token if self._login is not None else ""

    async def valid_token(self) -> str:
        """Look the token up, and renew it if it has expired; "" when there is none."""
        return await self._kept().valid_token() if self._is_wanted else ""

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize one HTTP request; none without a token."""
        return self._login.headers(method, url) if self._login is not None else {}

    def needs_resend(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return whether a request was refused only for lack of the nonce in `headers`."""
        return self._login is not None and self._login.needs_resend(status, headers)

    async def refresh_after(self, error: AuthError) -> None:
        """Find the token that the server asks for, or renew the one it has refused.

        Raises:
            LoginRequired: A person must log in, or log in again.
            AuthError: A login would not help.
        """
        self._is_wanted = True
        await self._kept().refresh_after(error)

    def _kept(self) -> OAuth:
        if self._login is None:
            store = self._store or UserTokenStore()
            self._login = OAuth(
                self._server_url,
                redirect_uri=REDIRECT_URI,
                ask=None,
                client=self._client,
                store=store,
            )
        return self._login
