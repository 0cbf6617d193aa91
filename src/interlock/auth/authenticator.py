"""The interfaces with which an HTTP endpoint authenticates its callers, and a wrapper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from interlock.auth.principal import Principal

# As in ASGI: names are in lower case, and values are not decoded.
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class Authenticator(Protocol):
    """Authenticates the sender of an HTTP request.

    An authenticator that caches credentials may also implement `RemembersCallers`.
    """

    @property
    def challenge(self) -> str:
        """The `WWW-Authenticate` header for 401 errors that do not set their own."""
        ...

    def published(self, path: str) -> bytes | None:
        """Return the public JSON document that belongs at a path; None if there is none."""
        ...

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """Return the principal that sent a request.

        An endpoint limits how long this takes; a cached credential should be accepted at once.

        Args:
            headers: All headers of the request.
            peer: The network address at the other end of the connection; None if unknown.

        Raises:
            AuthError: The request is refused.
        """
        ...


class CheckedAuth:
    """Authenticates callers by another authenticator, and then checks their principals.

    Args:
        authenticator: The other authenticator.
        check: Returns the principal to use for a caller; raises an `AuthError` to refuse it.
    """

    def __init__(
        self, authenticator: Authenticator, check: Callable[[Principal], Principal]
    ) -> None:
        self._authenticator = authenticator
        self._check = check

    @property
    def challenge(self) -> str:
        return self._authenticator.challenge

    def published(self, path: str) -> bytes | None:
        return self._authenticator.published(path)

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        return self._check(await self._authenticator.authenticate(headers, peer))


class RemembersCallers(Protocol):
    """An authenticator that caches callers, so that some requests need no waiting."""

    def known(self, headers: Headers) -> Principal | None:
        """Return a request's principal from the cache; None if `authenticate` must be called.

        Raises:
            AuthUnavailable: Credentials cannot be verified now.
        """
        ...


def values_of(headers: Headers, name: bytes) -> list[bytes]:
    """Return all values of a header, without surrounding spaces."""
    return [value.strip(b" \t") for each, value in headers if each == name]
