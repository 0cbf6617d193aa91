"""Path templates, and the values that may fill them without reaching another route.

Percent-encoding is not enough: many servers decode `%2F` before they route. So a value is one
segment that means the same however often it is decoded, and a path that another operation of
the document serves is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from interlock.errors import InvalidArguments

_VARIABLE = re.compile(r"\{([^{}]+)\}")
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f-\x9f]")
_DECODINGS = 3


class Template:
    """The path of an operation.

    Args:
        path: Such as `/orders/{id}`.
        others: The other paths that the document serves with the same method.
        spanning: Variables whose values may span segments.
    """

    def __init__(self, path: str, others: Iterable[str] = (), spanning: Iterable[str] = ()) -> None:
        self._parts = _VARIABLE.split(path)  # literal, variable, literal, …
        self._spanning = frozenset(spanning)
        self._segments = path.count("/")
        own = _shape(path)
        self._rivals = [
            (re.compile(_expression(other)), other)
            for other in dict.fromkeys(others)
            if _shape(other) != own and self._may_meet(path, other)
        ]

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the path for values that are encoded already.

        Raises:
            InvalidArguments: The path would reach another route.
        """
        path = "".join(
            values[part] if index % 2 else part for index, part in enumerate(self._parts)
        )
        if path.count("/") != self._segments and not self._spanning:
            raise InvalidArguments("a path argument contains a separator; send one segment")
        for segment in path.split("/"):
            if _is_dots(segment):
                raise InvalidArguments("a path argument leads to another folder; send a plain name")
        decoded = unquote(path)
        for rival, template in self._rivals:
            if rival.fullmatch(decoded):
                raise InvalidArguments(
                    f"the path arguments lead to another operation ({template}); send other values"
                )
        return path

    def _may_meet(self, own: str, other: str) -> bool:
        """Whether a path made from `own` can also match `other`, and `other` is more specific."""
        if self._spanning:
            return True
        mine, theirs = own.split("/"), other.split("/")
        return (
            len(mine) == len(theirs)
            and all("{" in a or "{" in b or a == b for a, b in zip(mine, theirs, strict=True))
            and any(
                "{" in a and b != a and not _is_variable(b)
                for a, b in zip(mine, theirs, strict=True)
            )
        )


def check_value(name: str, value: str, *, spans: bool = False) -> None:
    """Refuse text that does not stay within its segment of the path.

    Args:
        name: Of the argument, for the error.
        value: The text before it is encoded.
        spans: Whether it may contain `/` between segments.

    Raises:
        InvalidArguments: The text does not show the value.
    """
    for segment in value.split("/") if spans else [value]:
        if spans and not segment:
            raise InvalidArguments(
                f"argument {name!r} has an empty segment; write it as 'folder/file'"
            )
        for _ in range(_DECODINGS + 1):
            if _UNSAFE.search(segment) or segment in (".", ".."):
                raise InvalidArguments(
                    f"argument {name!r} has a separator, a control character or dots that would "
                    "change the path; send a plain name"
                )
            decoded = unquote(segment)
            if decoded == segment:
                break
            segment = decoded


def _is_dots(segment: str) -> bool:
    return unquote(segment) in (".", "..")


def _is_variable(segment: str) -> bool:
    return segment.startswith("{") and segment.find("}") == len(segment) - 1


def _shape(path: str) -> str:
    return _VARIABLE.sub("{}", path)


def _expression(path: str) -> str:
    parts = _VARIABLE.split(path)
    return "".join("[^/]+" if index % 2 else re.escape(part) for index, part in enumerate(parts))
