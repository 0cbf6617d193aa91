"""The events of a turn that are kept for clients that come back."""

from __future__ import annotations

from collections import deque

from interlock.types import JsonObject
from interlock.web.events import TurnEvent

MAX_EVENTS = 2_000  # of a turn that are kept
MAX_BYTES = 1024 * 1024
MAX_JOINED = 1_000  # tokens that become one event at a time


class TurnLog:
    """The latest events of a turn. Old tokens are joined, and then old events are dropped.

    Attributes:
        seq: The number of the last event.
    """

    def __init__(self) -> None:
        self.seq = 0
        self._events: deque[TurnEvent] = deque()
        self._bytes = 0

    def append(self, fields: JsonObject) -> TurnEvent:
        """Number an event, and keep it."""
        self.seq += 1
        fields["seq"] = self.seq
        event = TurnEvent(self.seq, fields)
        self._events.append(event)
        self._bytes += event.size
        while len(self._events) > MAX_EVENTS or self._bytes > MAX_BYTES:
            self._forget_oldest()
        return event

    def since(self, after: int) -> list[TurnEvent] | None:
        """Return the events after a number; None if some of them are gone."""
        if after < self.seq:
            oldest = self._events[0] if self._events else None
            if oldest is None or oldest.fields.get("from", oldest.seq) > after + 1:
                return None
            if oldest.fields.get("from", oldest.seq) <= after < oldest.seq:
                return None  # within tokens that were joined
        return [event for event in self._events if event.seq > after]

    def _forget_oldest(self) -> None:
        """Join the oldest tokens into one event, or drop the oldest event."""
        first = self._events.popleft()
        self._bytes -= first.size
        if first.kind != "token" or self._bytes > MAX_BYTES:
            return
        contents, last = [first.fields["content"]], first
        while self._events and self._events[0].kind == "token" and len(contents) < MAX_JOINED:
            last = self._events.popleft()
            self._bytes -= last.size
            contents.append(last.fields["content"])
        begin = first.fields.get("from", first.seq)
        joined = TurnEvent(last.seq, {**last.fields, "content": "".join(contents), "from": begin})
        self._events.appendleft(joined)
        self._bytes += joined.size
