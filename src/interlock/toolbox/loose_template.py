"""URI templates from servers, matched only by their literal parts."""

from __future__ import annotations

import re
from functools import cached_property

MAX_URI = 64 * 1024
_EXPRESSION = re.compile(r"\{[^{}]*\}")


class LooseTemplate:
    """An RFC 6570 template that matches URIs by its literal parts only, in linear time.

    A URI that matches may be from the template; only the server can decide whether it is.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._start = text.partition("{")[0]

    @cached_property
    def _literals(self) -> list[str]:  # made late, as a server may list thousands of templates
        return _EXPRESSION.split(self._text)

    def may_match(self, uri: str) -> bool:
        """Return whether a URI contains the template's literals in order."""
        if len(uri) > MAX_URI or not uri.startswith(self._start):
            return False
        first, *others = self._literals
        if not uri.startswith(first):
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
