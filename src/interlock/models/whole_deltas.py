"""Deltas of an answer with whole characters only, for models that other programs provide."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.models.half_characters import HalfCharacters
from interlock.models.model import Notice, ReasoningDelta, TextDelta

Delta = TextDelta | ReasoningDelta | Notice


class WholeDeltas:
    """Joins characters whose halves arrive in different deltas of one kind."""

    def __init__(self) -> None:
        self._halves: dict[type[Delta], HalfCharacters] = {}

    def add(self, delta: Delta) -> Delta | None:
        """Return a delta with the whole characters so far; None if there are none."""
        kind = type(delta)
        if kind not in self._halves:
            if delta.text.isascii():
                return delta
            self._halves[kind] = HalfCharacters()
        text = self._halves[kind].add(delta.text)
        return kind(text) if text else None

    def end(self) -> Iterator[Delta]:
        """Yield what is left at the end of the answer."""
        for kind, half in self._halves.items():
            if text := half.end():
                yield kind(text)
