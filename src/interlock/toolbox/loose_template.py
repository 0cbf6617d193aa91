"""URI templates of other programs, matched by their literals only."""

from __future__ import annotations

import re

MAX_URI = 64 * 1024
_EXPRESSION = re.compile(r"\{[^{}]*\}")


class LooseTemplate:
    """An RFC 6570 template of which only the literals are read: a match may be a URI of it.

    The server decides whether it is. Matching takes linear time.
    """

    def __init__(self, text: str) -> None:
        self._literals = _EXPRESSION.split(text)

    def may_match(self, uri: str) -> bool:
        """Return whether the URI has the template's literals in their order."""
        first, *others = self._literals
        if len(uri) > MAX_URI or not uri.startswith(first):
            return False
        if not others:
            return uri == first
        last = others.pop()
        place = len(first)
        for literal in others:
            place = uri.find(literal, place)
            if place < 0:
                return False
            place += len(literal)
        return len(uri) - len(last) >= place and uri.endswith(last)
