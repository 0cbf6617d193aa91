"""A turn's events: pieces of text are joined, and the latest events are kept for reconnects."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from interlock.types import JsonObject
from interlock.web.chat.events import TEXTS, TurnEvent

JOIN_SECONDS = 0.05  # seconds between two events with text
MAX_EVENTS = 2_000  # events that are kept of one turn
MAX_BYTES = 1024 * 1024
MAX_JOINED = 1_000  # pieces of text that are joined at a time
_PIECE = 64  # bytes of memory for a piece of text besides its characters


class TurnText:
    """Joins a turn's pieces of text, so that fewer events are encoded and sent.

    The first piece is emitted at once. Pieces that arrive within `JOIN_SECONDS` of the last event
    wait, and are then emitted as one event.

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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces.clear()
            self._emitted = monotonic()
            self._emit(self._kind, text)


class TurnLog:
    """The latest events of a turn. If it grows too large, old text is joined, then events dropped.

    Attributes:
        seq: The number of the last event.
    """

    def __init__(self) -> None:
        self.seq = 0
        self._kept: deque[TurnEvent | _Text] = deque()
        self._events = 0
        self._bytes = 0

    def append(self, fields: JsonObject) -> TurnEvent:
        self.seq += 1
        fields["seq"] = self.seq
        event = TurnEvent(self.seq, fields)
        if event.kind in TEXTS:
            self._append_text(event)
        else:
            self._kept.append(event)
            self._bytes += event.size
        self._events += 1
        while self._events > MAX_EVENTS or self._bytes > MAX_BYTES:
            self._forget_oldest()
        return event

    def _append_text(self, event: TurnEvent) -> None:
        last = self._kept[-1] if self._kept else None
        if not isinstance(last, _Text) or last.kind != event.kind:
            last = _Text(event)
            self._kept.append(last)
        last.pieces.append(event.fields["content"])
        self._bytes += _PIECE + len(event.fields["content"])

    def since(self, after: int) -> list[TurnEvent] | None:
        """Return the events after a number; None if some of them were dropped or joined."""
        if after < self.seq and (not self._kept or self._kept[0].begin > after + 1):
            return None
        found: list[TurnEvent] = []
        for each in self._kept:
            if each.seq <= after:
                continue
            if isinstance(each, TurnEvent):
                found.append(each)
            elif each.begin <= after < each.first - 1:
                return None  # the client has only a part of a joined text
            else:
                found.append(each.since(after))
        return found

    def _forget_oldest(self) -> None:
        """Join the oldest pieces of text, or drop the oldest event."""
        oldest = self._kept[0]
        if isinstance(oldest, _Text) and self._bytes <= MAX_BYTES and oldest.is_joinable:
            joined = oldest.join()
            self._events -= joined
            self._bytes -= joined * _PIECE
            return
        self._kept.popleft()
        if isinstance(oldest, TurnEvent):
            self._events -= 1
            self._bytes -= oldest.size
        else:
            self._events -= oldest.count
            self._bytes -= oldest.size


class _Text:
    """Successive pieces of text, of which the oldest may be joined.

    One object for all pieces saves memory: an object for each piece would take ten times as much.

    Attributes:
        begin: The number of the first piece.
        first: The number of the first piece that is not joined.
        joined: The joined text of the pieces before `first`.
        pieces: The pieces from `first` on.
    """

    __slots__ = ("_fields", "begin", "first", "joined", "kind", "pieces")

    def __init__(self, event: TurnEvent) -> None:
        self.kind = event.kind
        self.begin = self.first = event.seq
        self.joined = ""
        self.pieces: list[str] = []
        self._fields = {key: event.fields[key] for key in event.fields if key not in _OWN}

    @property
    def seq(self) -> int:
        return self.first + len(self.pieces) - 1

    @property
    def count(self) -> int:
        """The number of events, for the limit `MAX_EVENTS`."""
        return len(self.pieces) + (self.first > self.begin)

    @property
    def size(self) -> int:
        """The approximate memory that the text takes, in bytes."""
        letters = len(self.joined) + sum(map(len, self.pieces))
        return letters + _PIECE * self.count

    @property
    def is_joinable(self) -> bool:
        return self.count > 1

    def join(self) -> int:
        """Join the oldest pieces; return by how much `count` falls."""
        before = self.count
        some = self.pieces[:MAX_JOINED]
        self.joined = "".join([self.joined, *some])
        del self.pieces[:MAX_JOINED]
        self.first += len(some)
        return before - self.count

    def since(self, after: int) -> TurnEvent:
        """Return one event with the text of all pieces after the piece number `after`."""
        if after < self.begin:
            content, begin = "".join([self.joined, *self.pieces]), self.begin
        else:
            content, begin = "".join(self.pieces[after + 1 - self.first :]), after + 1
        fields = {**self._fields, "content": content, "seq": self.seq}
        if begin < self.seq:
            fields["from"] = begin
        return TurnEvent(self.seq, fields)


_OWN = frozenset(("content", "seq"))
