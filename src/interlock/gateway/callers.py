"""The callers of a gateway: owners of API keys, and users with a token from an issuer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from interlock.auth.gateway_auth import GatewayAuth
from interlock.auth.key_ring import KeyRing
from interlock.auth.principal import Principal
from interlock.config.gateway import Issuer
from interlock.gateway.observer import GatewayObserver
from interlock.gateway.parts import Parts
from interlock.text import urls

if TYPE_CHECKING:
    from interlock.auth.authorization_ring import AuthorizationRing

LOCAL = "local"  # the user of a key that is valid for one run only


class GatewayCallers:
    """Makes authenticators for a gateway's callers, by the current configuration.

    Args:
        keys: The API keys.
        parts: Returns the parts of the current configuration.
        observer: Notified of refused credentials.
        grants: Verifies the front door's tokens; None without a front door.
    """

    def __init__(
        self,
        keys: KeyRing,
        parts: Callable[[], Parts],
        observer: GatewayObserver,
        grants: AuthorizationRing | None = None,
    ) -> None:
        self._keys = keys
        self._parts = parts
        self._observer = observer
        self._grants = grants

    def authenticator(self, resource: str, view: str = "", scope: str = "mcp:") -> GatewayAuth:
        """Return the authenticator for a path, by the current configuration.

        Args:
            resource: The path's public URL.
            view: The view at this path; "" if the path is for all views.
            scope: A prefix that at least one of the credential's scopes must have.
        """
        # Tokens of the front door are for clients: they open neither pages nor the admin API.
        grants = self._grants if scope == "mcp:" else None
        return GatewayAuth(
            self._keys,
            self._parts().issuers,
            resource=resource,
            view=view,
            scope_prefix=scope,
            on_refused=self._observer.credential_refused,
            grants=grants,
            login_at="" if grants is None else urls.origin(resource),
        )

    def key_for_this_run(self) -> str | None:
        """Return a new key that is not stored; None if the database contains keys."""
        return None if len(self._keys) else self._keys.issue(LOCAL, ["mcp:*"])

    def login_issuers(self) -> list[Issuer]:
        """Return the issuers that users can log in at, for the pages."""
        return [each for each in self._parts().settings.issuers if each.client_id]

    def full_rights(self, principal: Principal) -> Principal | None:
        """Return a caller with all rights of its person; None if its credential cannot get more."""
        return None if self._grants is None else self._grants.full_rights(principal)

    @property
    def exist(self) -> bool:
        """Whether any credential is accepted: an API key, or tokens from an issuer."""
        return bool(len(self._keys)) or self._parts().issuers is not None


def is_trusted(issuers: Sequence[Issuer], user: str) -> bool:
    """Return whether a user without an API key may go on: the issuer is still configured for it.

    Args:
        issuers: The configured issuers.
        user: The principal's id, such as "user:anna" or "ISSUER#SUBJECT".
    """
    return "#" not in user or issuer_of(issuers, user) is not None


def issuer_of(issuers: Sequence[Issuer], user: str) -> Issuer | None:
    """Return the issuer of a user "ISSUER#SUBJECT"; None if it is not configured for users."""
    name = user.partition("#")[0]
    return next(
        (each for each in issuers if each.issuer == name and (each.client_id or each.accepts)), None
    )
