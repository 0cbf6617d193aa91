"""The callers of a gateway: owners of keys, and people with a token of an issuer."""

from __future__ import annotations

from collections.abc import Callable

from interlock.auth.gateway_auth import GatewayAuth
from interlock.auth.key_ring import KeyRing
from interlock.config.gateway import Issuer
from interlock.gateway.observer import GatewayObserver
from interlock.gateway.parts import Parts

LOCAL = "local"  # the user of a key that is valid for one run only


class GatewayCallers:
    """Identifies the callers of a gateway.

    Args:
        keys: The API keys.
        parts: Returns the present configuration.
        observer: Is notified of refused credentials.
    """

    def __init__(
        self, keys: KeyRing, parts: Callable[[], Parts], observer: GatewayObserver
    ) -> None:
        self._keys = keys
        self._parts = parts
        self._observer = observer

    def authenticator(self, resource: str, view: str = "", scope: str = "mcp:") -> GatewayAuth:
        """Return the authenticator of a path, by the present configuration.

        Args:
            resource: The public URL of the path.
            view: The view at the path; "" for none.
            scope: One of the scopes must begin with it.
        """
        return GatewayAuth(
            self._keys,
            self._parts().issuers,
            resource=resource,
            view=view,
            scope_prefix=scope,
            on_refused=self._observer.credential_refused,
        )

    def key_for_this_run(self) -> str | None:
        """Return a new key that is not stored; None if the database has keys."""
        return None if len(self._keys) else self._keys.issue(LOCAL, ["mcp:*"])

    def login_issuers(self) -> list[Issuer]:
        """Return the issuers at which people can log in to the pages."""
        return [each for each in self._parts().settings.issuers if each.client_id]

    @property
    def exist(self) -> bool:
        """Whether any credential exists: a key, or an issuer of tokens."""
        return bool(len(self._keys)) or self._parts().issuers is not None
