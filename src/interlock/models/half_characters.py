"""Joins characters whose two halves arrive in different pieces of a text.

JSON can express half of a character, "\\ud83d". Some servers end a piece of an answer there. UTF-8
cannot express it, so it must not get into a conversation.
"""

from __future__ import annotations

from interlock.text.quoting import replace_surrogates

MISSING = "\ufffd"


class HalfCharacters:
    """Keeps the first half of a character until the second half arrives."""

    def __init__(self) -> None:
        self.is_open = False  # whether the second half of a character is missing
        self._half = ""

    def add(self, piece: str) -> str:
        """Return the whole characters so far; a half without its other half becomes U+FFFD."""
        if piece.isascii() and not self.is_open:
            return piece
        piece, self._half = self._half + piece, ""
        if "\ud800" <= piece[-1:] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        self.is_open = bool(self._half)
        whole: str = replace_surrogates(piece)
        return whole

    def end(self) -> str:
        """Return the half character, if any, at the end of the text."""
        return MISSING if self.is_open else ""
