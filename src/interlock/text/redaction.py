"""Removes secrets from texts, errors and reprs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, ClassVar, Protocol, TypeVar

from msgspec import Struct

_E = TypeVar("_E", bound=Exception)

MIN_SECRET = 6  # characters; shorter values would make any text unreadable


_NAMES = r"(?:api[-_]?key|key|token|secret|pass(?:word|wd|phrase)?|pwd|credentials?|authorization)"
_OPTION = re.compile(rf"--?[\w.-]*{_NAMES}", re.IGNORECASE)  # the value follows it
_VALUE = re.compile(
    rf"(?:{_NAMES}(?:=|:\s|[\"']\s*:)|(?:authorization|api[-_]?key):)"
    r"[\s\"']*(?:(?:bearer|basic)\s+)?(.+)",
    re.IGNORECASE | re.DOTALL,
)


class HiddenValues(dict[str, str]):
    """A dictionary whose repr shows its keys only."""

    def __repr__(self) -> str:
        return f"HiddenValues({', '.join(self)})"


NO_VALUES = HiddenValues()  # a default, which no code changes


class HasToken(Protocol):
    """The part of an `Authorization` that a `Redactor` needs."""

    @property
    def token(self) -> str:
        """The token in use; "" without a token."""
        ...


class Redactor:
    """Removes the credentials of one server from texts.

    Args:
        texts: The secrets in its configuration.
        authorization: The source of its access token.
    """

    def __init__(self, texts: Iterable[str] = (), authorization: HasToken | None = None) -> None:
        # JSON escapes quotation marks and backslashes, so the escaped secret is redacted as well.
        given = {each for text in texts for each in _written(text)}
        # Longest first, so that "Bearer abc" is replaced before "abc".
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


def secret_ends(args: Sequence[str]) -> list[str]:
    """Return the secret at the end of each program argument; "" if an argument has no secret.

    Names of options and variables show which arguments are secret. The secret is "abc" in
    `--api-key abc`, `--token=abc`, `API_KEY=abc` and `Authorization: Bearer abc`.
    """
    ends = []
    is_value = False
    for arg in args:
        named = _VALUE.search(arg)
        if is_value and not arg.startswith("-"):
            ends.append(arg)
        else:
            ends.append(named[1] if named is not None else "")
        is_value = _OPTION.fullmatch(arg) is not None
    return ends


def masked_arguments(args: Sequence[str]) -> list[str]:
    """Return a program's configured arguments, with `***` in place of each secret.

    A variable such as `${TOKEN}` is not a secret.
    """
    return [
        arg.removesuffix(end) + "***" if end and "${" not in end else arg
        for arg, end in zip(args, secret_ends(args), strict=True)
    ]


def redact_arguments(args: Sequence[str], redactor: Redactor) -> list[str]:
    """Return a program's arguments without secrets, including short ones that a name marks."""
    return [
        redactor.redact(arg.removesuffix(end) + "***" if end else arg)
        for arg, end in zip(args, secret_ends(args), strict=True)
    ]


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
