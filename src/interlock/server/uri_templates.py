"""URI templates with text and variables, which are matched in linear time."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from interlock.errors import SignatureError

MAX_URI = 64 * 1024
_UNSAFE = re.compile(r"\0|^[/\\]|^[A-Za-z]:[/\\]|(?:^|[/\\])\.\.(?:[/\\]|$)")
_STARRED = re.compile(r"\{(\w+)\*\}")
_PART = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")


class UriTemplate:
    """A URI template such as `notes://{folder}/{name}`; only `{+path}` matches slashes.

    There must be text between two variables, so that each URI matches in only one way. A value that
    would leave a folder does not match: an absolute path, a segment "..", or a null character.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._literals: list[str] = []
        self._variables: list[tuple[str, bool]] = []
        end = 0
        for match in _PART.finditer(text):
            self._add_literal(text[end : match.start()])
            if match[2] in self.variables:
                raise SignatureError(f"URI template {text!r} has the variable {match[2]!r} twice")
            self._variables.append((match[2], bool(match[1])))
            end = match.end()
        self._literals.append(text[end:])
        if any("{" in literal or "}" in literal for literal in self._literals):
            if found := _STARRED.search(text):
                raise SignatureError(
                    f"URI template {text!r}: {found[0]} is not supported; write {{+{found[1]}}}"
                )
            raise SignatureError(
                f"URI template {text!r}: only {{name}} and {{+name}} are supported"
            )

    def _add_literal(self, literal: str) -> None:
        if self._variables and not literal:
            raise SignatureError(
                f"URI template {self.text!r}: two variables need text between them"
            )
        self._literals.append(literal)

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self._variables)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded variables of a URI; None if the URI does not match."""
        if len(uri) > MAX_URI or not uri.startswith(self._literals[0]):
            return None
        values: dict[str, str] = {}
        place = len(self._literals[0])
        for (name, takes_slashes), literal in zip(self._variables, self._literals[1:], strict=True):
            is_last = len(values) + 1 == len(self._variables)
            if is_last and not uri.endswith(literal):
                return None
            end = len(uri) - len(literal) if is_last else uri.find(literal, place)
            if end <= place:  # a variable would be empty, or the text after it is missing
                return None
            value = uri[place:end]
            if "/" in value and not takes_slashes:
                return None
            values[name] = unquote(value)
            if _UNSAFE.search(values[name]):
                return None
            place = end + len(literal)
        return values if place == len(uri) else None

    def fill(self, values: dict[str, str]) -> str:
        """Return the URI with these values, which are percent-encoded."""
        parts = [self._literals[0]]
        for (name, takes_slashes), literal in zip(self._variables, self._literals[1:], strict=True):
            parts += [quote(values[name], safe="/" if takes_slashes else ""), literal]
        return "".join(parts)
