"""Joins the pieces of a streamed text, so that an event costs no more than a person sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

JOIN_SECONDS = 0.05  # between two events of text


class TurnText:
    """The text of a turn that was not emitted yet.

    The first piece is emitted at once. Pieces within `JOIN_SECONDS` of the last event wait and
    become one event, which is encoded once for all who follow the turn.

    Args:
        emit: Called with a kind ("token" or "reasoning") and a text.
    """

    def __init__(self, emit: Callable[[str, str], object]) -> None:
        self._emit = emit
        self._kind = ""
        self._pieces: list[str] = []
        self._emitted = -JOIN_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def add(self, kind: str, piece: str) -> None:
        """Add a piece of text."""
        if kind != self._kind:
            self.flush()
            self._kind = kind
        self._pieces.append(piece)
        if self._timer is not None:
            return
        wait = self._emitted + JOIN_SECONDS - monotonic()
        if wait <= 0:
            self.flush()
        else:
            self._timer = asyncio.get_running_loop().call_later(wait, self.flush)

    def flush(self) -> None:
        """Emit what waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces.clear()
            self._emitted = monotonic()
            self._emit(self._kind, text)
