"""Redactor are kept out of texts and out of reprs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

from msgspec import Struct

MIN_SECRET = 6  # characters; shorter values would make any text unreadable


class HasToken(Protocol):
    """Where the access token of a server comes from."""

    @property
    def token(self) -> str:
        """The token that is sent now; "" for none."""
        ...


class Redactor:
    """What a server was given and others must not see.

    Args:
        texts: What the configuration brought.
        authorization: Whose access token is sent.
    """

    def __init__(self, texts: Iterable[str] = (), authorization: HasToken | None = None) -> None:
        # The longest first: "Bearer abc" before "abc".
        self._texts = sorted({*texts}, key=len, reverse=True)
        self._authorization = authorization

    def __repr__(self) -> str:
        return f"Redactor({len(self._texts)})"

    def redact(self, text: str) -> str:
        """Give a text without them."""
        token = self._authorization.token if self._authorization is not None else ""
        for secret in (token, *self._texts):
            if len(secret) >= MIN_SECRET:
                text = text.replace(secret, "***")
        return text


class Redacted(Struct, frozen=True):
    """A struct of which only the members in `public` are shown, by Python and by rich alike.

    Structs show all of their members otherwise; `__repr__` alone is passed over by rich.
    """

    public: ClassVar[tuple[str, ...]] = ()

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in self.public]

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({members})"
