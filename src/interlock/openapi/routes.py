"""Path templates, filled with values in such a way that a path cannot reach another operation.

Percent-encoding is not enough, because many servers decode `%2F` before they route. So a value must
remain one segment however often it is decoded, and a path that matches another operation in the
document is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from urllib.parse import unquote

from interlock.errors import InvalidArguments

_VARIABLE = re.compile(r"\{([^{}]+)\}")
_UNSAFE = re.compile(r"[/\\\x00-\x1f\x7f-\x9f]")
_DOTS = frozenset({".", ".."})
_DECODINGS = 3


class PathTemplate:
    """The path of an operation.

    Args:
        path: The template, such as `/orders/{id}`.
        others: The document's path templates with the same method.
        spanning: The variables whose values may contain several segments.
    """

    def __init__(self, path: str, others: Iterable[str] = (), spanning: Iterable[str] = ()) -> None:
        self._path = path
        self._others = others
        self._spanning = frozenset(spanning)
        self._parts = _VARIABLE.split(path)  # literal, variable, literal, …

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the path with encoded values in place of its variables.

        Raises:
            InvalidArguments: The path would reach another operation.
        """
        if not all(values.values()):
            raise InvalidArguments("a path argument is empty; send a value")
        parts = self._parts.copy()
        parts[1::2] = map(values.__getitem__, self._parts[1::2])
        path = "".join(parts)
        if path.count("/") != self._path.count("/") and not self._spanning:
            raise InvalidArguments("a path argument contains a separator; send one segment")
        decoded = unquote(path)
        if not _DOTS.isdisjoint(decoded.split("/")):
            raise InvalidArguments("a path argument leads to another folder; send a plain name")
        if len(self._parts) > 1 and self._rivals:
            self._refuse_rivals(path)
        return path

    def _refuse_rivals(self, path: str) -> None:
        """Raise an error if a path matches another operation, however often it is decoded."""
        for _ in range(_DECODINGS + 1):
            decoded = unquote(path)
            segments = decoded.casefold().split("/")  # many servers ignore case in paths
            for rival, template in self._rivals:
                if len(rival) == len(segments) and all(map(_matches, segments, rival)):
                    raise InvalidArguments(
                        f"the path arguments lead to another operation ({template}); "
                        "send other values"
                    )
            if decoded == path:
                break
            path = decoded

    @cached_property
    def _rivals(self) -> list[tuple[list[list[str]], str]]:
        """The templates that a filled path may also match, each with its segments' literals."""
        own = _shape(self._path)
        return [
            (_literals(other), other)
            for other in dict.fromkeys(self._others)
            if _shape(other) != own and self._may_match(other)
        ]

    def _may_match(self, other: str) -> bool:
        """Return whether a filled path may match `other`, with a literal in place of a variable."""
        mine, theirs = self._path.split("/"), other.split("/")
        if self._spanning:
            return mine[1:2] == theirs[1:2] or "{" in mine[1]
        pairs = list(zip(mine, theirs, strict=False))
        return (
            len(mine) == len(theirs)
            and all("{" in a or "{" in b or a == b for a, b in pairs)
            and any("{" in a and not _is_variable(b) for a, b in pairs if a != b)
        )


def check_value(name: str, value: str, *, spans: bool = False) -> None:
    """Raise an error if a value would change the path outside its own segment.

    Args:
        name: The name of the argument, for the error.
        value: The text before it is encoded.
        spans: Whether the value may contain several segments, separated by `/`.

    Raises:
        InvalidArguments: The value would change the path. The text does not show the value.
    """
    for segment in value.split("/") if spans else [value]:
        if spans and not segment:
            raise InvalidArguments(
                f"argument {name!r} has an empty segment; write it as 'folder/file'"
            )
        for _ in range(_DECODINGS + 1):
            # Java servers drop what follows ";" before they resolve dots.
            if _UNSAFE.search(segment) or segment.partition(";")[0] in _DOTS:
                raise InvalidArguments(
                    f"argument {name!r} has a separator, a control character or dots that would "
                    "change the path; send a plain name"
                )
            decoded = unquote(segment)
            if decoded == segment:
                break
            segment = decoded


def _is_variable(segment: str) -> bool:
    return segment.startswith("{") and segment.find("}") == len(segment) - 1


def _shape(path: str) -> str:
    return _VARIABLE.sub("{}", path)


def _literals(path: str) -> list[list[str]]:
    """Return the case-folded literals around the variables in each segment of a path."""
    segments = _VARIABLE.sub("\0", path).casefold().split("/")
    return [segment.split("\0") for segment in segments]


def _matches(segment: str, literals: list[str]) -> bool:
    """Return whether a segment contains the literals in order, with a character between them.

    A regular expression would take polynomial time in the number of variables.
    """
    if len(literals) == 1:
        return segment == literals[0]
    first, *inner, last = literals
    end = len(segment) - len(last)
    if not (segment.startswith(first) and segment.endswith(last)):
        return False
    position = len(first)
    for literal in inner:
        found = segment.find(literal, position + 1, end)
        if found < 0:
            return False
        position = found + len(literal)
    return position < end
