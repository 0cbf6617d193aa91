"""Secrets are removed from texts, and omitted from reprs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import copy
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec import Struct

_E = TypeVar("_E", bound=Exception)

MIN_SECRET = 6  # characters; shorter values would make any text unreadable


class HasToken(Protocol):
    """The part of an `Authorization` that a `Redactor` needs."""

    @property
    def token(self) -> str:
        """The token in use; "" for none."""
        ...


class Redactor:
    """Removes the credentials of one server from texts.

    Args:
        texts: The secrets in its configuration.
        authorization: Where its access token comes from.
    """

    def __init__(self, texts: Iterable[str] = (), authorization: HasToken | None = None) -> None:
        # In JSON, a secret with a quotation mark or a backslash looks different.
        given = {each for text in texts for each in _written(text)}
        # The longest first: "Bearer abc" before "abc".
        self._texts = sorted(given, key=len, reverse=True)
        self._authorization = authorization

    def __repr__(self) -> str:
        return f"Redactor({len(self._texts)})"

    def redact(self, text: str) -> str:
        """Return a text with each secret replaced by "***"."""
        token = self._authorization.token if self._authorization is not None else ""
        for secret in (token, *self._texts):
            if len(secret) >= MIN_SECRET:
                text = text.replace(secret, "***")
        return text


def _written(text: str) -> Iterable[str]:
    return text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


def redact_error(error: _E, redactor: Redactor) -> _E:
    """Return a copy of an error without secrets in its text and its attributes."""
    clean = copy(error)
    for name, value in vars(error).items():
        setattr(clean, name, redact_value(value, redactor))
    clean.args = redact_value(error.args, redactor)
    return clean


def redact_value(value: Any, redactor: Redactor) -> Any:
    """Return a JSON value, or a tuple of them, without secrets in its texts."""
    if isinstance(value, str):
        return redactor.redact(value)
    if isinstance(value, tuple):
        return tuple(redact_value(each, redactor) for each in value)
    if isinstance(value, list):
        return [redact_value(each, redactor) for each in value]
    if isinstance(value, dict):
        return {
            redact_value(key, redactor): redact_value(each, redactor) for key, each in value.items()
        }
    return value


class Redacted(Struct, frozen=True):
    """A struct whose repr has only the members in `public`, in Python and in rich.

    By default a struct shows all members; rich ignores `__repr__`.
    """

    public: ClassVar[tuple[str, ...]] = ()

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in self.public]

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({members})"
