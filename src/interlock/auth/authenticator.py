"""What an HTTP endpoint needs to identify its callers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from interlock.auth.principal import Principal

# Names in lower case, values undecoded, as ASGI has them.
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class Authenticator(Protocol):
    """Identifies the sender of an HTTP request.

    One that remembers credentials may have a method `known` besides, as `RemembersCallers` says.
    """

    @property
    def challenge(self) -> str:
        """The `WWW-Authenticate` header of a 401 whose error names none."""
        ...

    def published(self, path: str) -> bytes | None:
        """Return the JSON document that everybody may read at a path; None for none."""
        ...

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """Return the sender of a request.

        An endpoint limits how long this takes; a known credential should need no waiting.

        Args:
            headers: All headers of the request.
            peer: Address of the other end of the connection, where it is known.

        Raises:
            AuthError: The request is refused.
        """
        ...


class RemembersCallers(Protocol):
    """An authenticator whose answer is sometimes ready without waiting."""

    def known(self, headers: Headers) -> Principal | None:
        """Return the sender of a request; None if `authenticate` has to look at it.

        Raises:
            AuthUnavailable: No credential can be verified now.
        """
        ...


def values_of(headers: Headers, name: bytes) -> list[bytes]:
    """Return all values of a header, without spaces around them."""
    return [value.strip(b" \t") for each, value in headers if each == name]


__all__ = ["Authenticator", "Headers", "RemembersCallers", "values_of"]
