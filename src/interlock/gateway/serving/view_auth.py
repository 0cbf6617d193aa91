"""Authenticators for an endpoint: one restricts callers to a view, one follows reloads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from msgspec.structs import replace

from interlock.auth import Authenticator, Principal
from interlock.auth.authenticator import CheckedAuth, Headers
from interlock.errors import AuthError

MAX_SEEN = 1_000  # cached principals


def in_view(authenticator: Authenticator, view: str) -> Authenticator:
    """Return an authenticator that restricts callers to a view.

    It refuses keys that are bound to another view.
    """
    seen: OrderedDict[int, tuple[Principal, Principal]] = OrderedDict()

    def restricted(principal: Principal) -> Principal:
        if principal.view == view:
            return principal
        if principal.view:
            raise AuthError("nothing is served at this path", 404)
        known = seen.get(id(principal))
        if known is None or known[0] is not principal:  # reuse objects: policies cache by identity
            known = seen[id(principal)] = principal, replace(principal, view=view)
            if len(seen) > MAX_SEEN:
                seen.popitem(last=False)
        return known[1]

    return CheckedAuth(authenticator, restricted)


class LatestAuth:
    """Authenticates callers by the current configuration, even after a reload.

    Args:
        make: Makes the authenticator for the current configuration.
    """

    def __init__(self, make: Callable[[], Authenticator]) -> None:
        self._make = make
        self.renew()

    def renew(self) -> None:
        """Make the authenticator again; call this after a reload."""
        self._made = self._make()
        self.known = getattr(self._made, "known", _unknown)

    @property
    def challenge(self) -> str:
        return self._made.challenge

    def published(self, path: str) -> bytes | None:
        return self._made.published(path)

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        return await self._made.authenticate(headers, peer)


def _unknown(_: Headers) -> None:
    return None
