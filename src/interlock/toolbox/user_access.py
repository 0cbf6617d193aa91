"""The users on whose behalf a server is called, and the credentials that it needs from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from interlock.config import HttpServer, OpenApiConfig, resolve
from interlock.errors import AuthRequired
from interlock.toolbox.user_credentials import Needs, UserCredentials, check_values, needs_of
from interlock.transports import Authorization


class UserAccess:
    """The credentials that one server needs from its users.

    Args:
        name: The server's name in the toolbox.
        server: The server's configuration, or the server itself.
        environ: The environment variables that `${VAR}` in the configuration refers to.
        credentials: The users' credentials; None if the local user is the only user.

    Attributes:
        needs: The credentials that the server is known to need from each user.
    """

    def __init__(
        self,
        name: str,
        server: object,
        environ: Mapping[str, str],
        credentials: UserCredentials | None,
    ) -> None:
        self.needs = needs_of(server) if credentials is not None else Needs()
        self._name = name
        self._server = server
        self._environ = environ
        self._credentials = credentials

    @property
    def is_personal(self) -> bool:
        """Whether each connection requires a credential of the calling user."""
        return bool(self.needs) and not isinstance(self._server, OpenApiConfig)

    @property
    def placeholders(self) -> Mapping[str, str]:
        """Values that stand for the user's own where no connection is made."""
        return dict.fromkeys(needs_of(self._server).names, "-")

    def require_login(self) -> None:
        """Require a login from each user, because the server demanded an optional login."""
        server = self._server
        if isinstance(server, HttpServer) and self._credentials is not None:
            is_of_users = server.sharing != "shared" and server.uses_login
            self.needs = Needs(self.needs.names, self.needs.login or is_of_users)

    async def owners(self) -> Sequence[str]:
        """Return some users who have a credential for the server, the most recent user first."""
        return [] if self._credentials is None else await self._credentials.owners(self._name)

    def connect_url(self, owner: str) -> str:
        return "" if self._credentials is None else self._credentials.connect_url(owner, self._name)

    async def values(self, owner: str) -> Mapping[str, str] | None:
        """Return the user's values for `${user:NAME}` in a connection; None if it has none.

        Raises:
            LoginRequired: The user has not stored a value, or no user is calling.
        """
        if not self.needs.names or not self.is_personal or self._credentials is None:
            return None
        values = await self._credentials.values(owner, self._name) if owner else {}
        check_values(self._name, self.needs.names, values)
        return values

    def login(self, owner: str) -> Callable[[HttpServer], Authorization] | None:
        """Return a function that makes a user's login; None if users share the server's login."""
        shared = getattr(self._server, "sharing", "shared") == "shared"
        if self._credentials is None or not owner or shared:
            return None
        return partial(self._credentials.login, owner, self._name)

    async def check(self, owner: str) -> None:
        """Raise an error if a user lacks a credential; refresh an expired login.

        Raises:
            LoginRequired: The user must log in, or store a credential.
            InterlockError: The credential cannot be checked.
        """
        if self._credentials is None:
            return
        values: Mapping[str, str] = {}
        if self.needs.names:
            values = await self._credentials.values(owner, self._name)
            check_values(self._name, self.needs.names, values)
        if self.needs.login and isinstance(self._server, HttpServer):
            server = resolve(self._server, self._environ, values)
            login = self._credentials.login(owner, self._name, server)
            if not login.token and not await login.valid_token():
                await login.refresh_after(AuthRequired("a token is needed", 401))
