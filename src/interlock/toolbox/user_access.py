"""The users on whose behalf a server is called, and the credentials that it needs from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from interlock.calls import Caller
from interlock.calls.call import LOCAL
from interlock.config import HttpServer, OpenApiConfig, resolve
from interlock.errors import AuthRequired
from interlock.toolbox.caller_values import values_of
from interlock.toolbox.user_credentials import (
    Needs,
    UserCredentials,
    check_values,
    needs_of,
    without_users,
)
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
        references: The references to the caller in the server's configuration.
    """

    def __init__(
        self,
        name: str,
        server: object,
        environ: Mapping[str, str],
        credentials: UserCredentials | None,
    ) -> None:
        needs = needs_of(server)
        self.needs = needs if credentials is not None else Needs()
        self.references = needs.caller
        self._name = name
        self._server = server
        self._environ = environ
        self._credentials = credentials

    @property
    def is_personal(self) -> bool:
        """Whether each connection requires a credential or a value of the calling user."""
        needs_caller = bool(self.references) and self._credentials is not None
        return needs_caller or (bool(self.needs) and not isinstance(self._server, OpenApiConfig))

    def caller_values(self, caller: Caller) -> tuple[str, ...]:
        """Return the caller's values for `references`.

        Raises:
            CallRefused: A value is missing, or cannot be sent.
        """
        in_headers = isinstance(self._server, HttpServer)
        return values_of(self._name, self.references, caller, in_headers=in_headers)

    def require_login(self) -> None:
        """Require a login from each user, because the server demanded an optional login."""
        server = self._server
        if isinstance(server, HttpServer) and self._credentials is not None:
            is_of_users = server.sharing != "shared" and server.uses_login
            has_login = self.needs.login or is_of_users
            self.needs = Needs(self.needs.names, has_login, self.needs.caller)

    async def owners(self) -> Sequence[str]:
        """Return some users who have a credential for the server, the most recent user first."""
        return [] if self._credentials is None else await self._credentials.owners(self._name)

    def connect_url(self, owner: str) -> str:
        return "" if self._credentials is None else self._credentials.connect_url(owner, self._name)

    async def values(
        self, owner: str, of_caller: Sequence[str] | None = None
    ) -> Mapping[str, str] | None:
        """Return the values that a connection is made with; see `variables.fill`.

        Args:
            owner: The user.
            of_caller: The caller's values for `references`; None for the local user.

        Raises:
            LoginRequired: The user has not stored a value, or no user is calling.
            CallRefused: The local user lacks a value.
        """
        found = None
        if self.references:
            of_caller = self.caller_values(LOCAL) if of_caller is None else of_caller
            found = dict(zip(self.references, of_caller, strict=True))
        if not self.needs.names or not self.is_personal or self._credentials is None:
            return found
        values = await self._credentials.values(owner, self._name) if owner else {}
        check_values(self._name, self.needs.names, values)
        return {**values, **(found or {})}

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
        if self.needs.names:
            values = await self._credentials.values(owner, self._name)
            check_values(self._name, self.needs.names, values)
        if self.needs.login and isinstance(self._server, HttpServer):
            server = resolve(without_users(self._server), self._environ)
            login = self._credentials.login(owner, self._name, server)
            if not login.token and not await login.valid_token():
                await login.refresh_after(AuthRequired("a token is needed", 401))
