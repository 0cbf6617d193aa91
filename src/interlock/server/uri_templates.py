"""URI templates with text and variables, which are matched in linear time.

A template may end in a query: `notes://{name}{?lines,page}`. Its variables may be absent from a
URI, and may come in any order.
"""

from __future__ import annotations

import re
from collections import Counter
from urllib.parse import quote, unquote

from interlock.errors import SignatureError

MAX_URI = 64 * 1024
_UNSAFE = re.compile(r"\0|^[/\\]|^[A-Za-z]:[/\\]|(?:^|[/\\])\.\.(?:[/\\]|$)")
_STARRED = re.compile(r"\{(\w+)\*\}")
_QUERY = re.compile(r"\{\?([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)\}\Z")
_PART = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)\}")


class UriTemplate:
    """A URI template such as `notes://{folder}/{name}{?page}`; only `{+path}` matches slashes.

    There must be text between two variables, so that each URI matches in only one way. A value that
    would leave a folder does not match: an absolute path, a segment "..", or a null character.

    Attributes:
        query: The names of the variables in the query.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._literals: list[str] = []
        self._variables: list[tuple[str, bool]] = []
        query = _QUERY.search(text)
        self.query: tuple[str, ...] = tuple(query[1].split(",")) if query else ()
        body = text[: query.start()] if query else text
        end = 0
        for match in _PART.finditer(body):
            self._add_literal(text[end : match.start()])
            self._variables.append((match[2], bool(match[1])))
            end = match.end()
        self._literals.append(body[end:])
        if any("{" in literal or "}" in literal for literal in self._literals):
            if found := _STARRED.search(text):
                raise SignatureError(
                    f"URI template {text!r}: {found[0]} is not supported; write {{+{found[1]}}}"
                )
            raise SignatureError(
                f"URI template {text!r}: only {{name}}, {{+name}} and, at the end, {{?name,name}} "
                "are supported"
            )
        for name, count in Counter(self.variables).items():
            if count > 1:
                raise SignatureError(f"URI template {text!r} has the variable {name!r} twice")

    def _add_literal(self, literal: str) -> None:
        if self._variables and not literal:
            raise SignatureError(
                f"URI template {self.text!r}: two variables need text between them"
            )
        self._literals.append(literal)

    @property
    def variables(self) -> tuple[str, ...]:
        return (*(name for name, _ in self._variables), *self.query)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded variables of a URI; None if the URI does not match.

        Variables of the query may be absent. A member of the query that the template does not have
        is not ignored, because its sender expects an effect.
        """
        if len(uri) > MAX_URI:
            return None
        if not self.query:
            return self._match_body(uri)
        body, _, query = uri.partition("?")
        values = self._match_body(body)
        for member in query.split("&") if query and values is not None else ():
            name, _, value = member.partition("=")
            if values is None or name not in self.query or name in values:
                return None
            values[name] = unquote(value)
            if _UNSAFE.search(values[name]):
                return None
        return values

    def _match_body(self, uri: str) -> dict[str, str] | None:
        if not uri.startswith(self._literals[0]):
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
        """Return the URI with these values, which are percent-encoded.

        Variables of the query that are not in `values` are left out.
        """
        parts = [self._literals[0]]
        for (name, takes_slashes), literal in zip(self._variables, self._literals[1:], strict=True):
            parts += [quote(values[name], safe="/" if takes_slashes else ""), literal]
        query = "&".join(
            f"{name}={quote(values[name], safe='')}" for name in self.query if name in values
        )
        return "".join(parts) + (f"?{query}" if query else "")
