"""Authenticators for an endpoint: one restricts callers to a view, one follows reloads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from msgspec.structs import replace

from interlock.auth import Authenticator, Principal
from interlock.auth.authenticator import Headers
from interlock.errors import AuthError

MAX_SEEN = 1_000  # cached principals


class InView:
    """Authenticates callers for a listener that serves a single view.

    Args:
        authenticator: Authenticates callers.
        view: The only view that is served.
    """

    def __init__(self, authenticator: Authenticator, view: str) -> None:
        self._authenticator = authenticator
        self._view = view
        self._seen: OrderedDict[int, tuple[Principal, Principal]] = OrderedDict()

    @property
    def challenge(self) -> str:
        return self._authenticator.challenge

    def published(self, path: str) -> bytes | None:
        return self._authenticator.published(path)

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """Return the caller, restricted to the view; refuse a key that is bound to another view."""
        principal = await self._authenticator.authenticate(headers, peer)
        if principal.view == self._view:
            return principal
        if principal.view:
            raise AuthError("nothing is served at this path", 404)
        known = self._seen.get(id(principal))
        if known is None or known[0] is not principal:  # reuse objects: policies cache by identity
            known = self._seen[id(principal)] = principal, replace(principal, view=self._view)
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)
        return known[1]


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
