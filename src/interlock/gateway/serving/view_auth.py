"""Authenticators of an endpoint: for one view only, and by the present configuration."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from msgspec.structs import replace

from interlock.auth import Authenticator, Principal
from interlock.auth.authenticator import Headers
from interlock.errors import AuthError

MAX_SEEN = 1_000  # principals whose copies with the only view are cached


class InView:
    """Identifies callers who see one view only, as the listener serves no other one.

    Args:
        authenticator: Identifies callers.
        view: The view.
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
        """Identify a caller; refuse a key that is bound to another view."""
        principal = await self._authenticator.authenticate(headers, peer)
        if principal.view == self._view:
            return principal
        if principal.view:
            raise AuthError("nothing is served at this path", 404)
        known = self._seen.get(id(principal))
        if known is None or known[0] is not principal:  # policies cache callers by identity
            known = self._seen[id(principal)] = principal, replace(principal, view=self._view)
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)
        return known[1]


class LatestAuth:
    """The authenticator of the present configuration.

    Args:
        make: Makes the authenticator.
    """

    def __init__(self, make: Callable[[], Authenticator]) -> None:
        self._make = make
        self.renew()

    def renew(self) -> None:
        """Make the authenticator again, after a reload."""
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
