"""The interfaces by which an HTTP endpoint identifies its callers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from interlock.auth.principal import Principal

# As in ASGI: names in lower case, values undecoded.
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class Authenticator(Protocol):
    """Identifies the sender of an HTTP request.

    An authenticator that caches credentials may also implement `RemembersCallers`.
    """

    @property
    def challenge(self) -> str:
        """The `WWW-Authenticate` header for a 401 error that has none of its own."""
        ...

    def published(self, path: str) -> bytes | None:
        """Return the public JSON document at a path; None for none."""
        ...

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """Return the sender of a request.

        An endpoint limits how long this takes; a known credential should need no waiting.

        Args:
            headers: All headers of the request.
            peer: Address of the other end of the connection; None if unknown.

        Raises:
            AuthError: The request is refused.
        """
        ...


class RemembersCallers(Protocol):
    """An authenticator that caches callers, so that some requests need no waiting."""

    def known(self, headers: Headers) -> Principal | None:
        """Return the sender of a request from the cache; None to call `authenticate`.

        Raises:
            AuthUnavailable: No credential can be verified now.
        """
        ...


def values_of(headers: Headers, name: bytes) -> list[bytes]:
    """Return all values of a header, without spaces around them."""
    return [value.strip(b" \t") for each, value in headers if each == name]
