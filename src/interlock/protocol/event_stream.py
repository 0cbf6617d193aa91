"""A parser for server-sent events, with limits, in time linear in the number of bytes.

Rule 1: a line ends in CR, LF or CRLF, and in nothing else.
Rule 2: an event ends with a blank line. An event that is cut off before its end is dropped with its
id, so that a client that resumes the stream receives the event again. At the end of a stream, an
event without the blank line counts if its data is whole JSON.
Rule 3: a stream that begins as a JSON text is one event with this text, because servers write
"text/event-stream" above JSON, too.

HTML Living Standard: server-sent events, "Interpreting an event stream".
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw, Struct

from interlock.errors import MessageTooLarge

MAX_RETRY = 3600.0  # seconds; a longer delay from the server is shortened to this

# The standard ignores an id with NUL, because the header Last-Event-ID cannot contain NUL. The
# header cannot contain other control characters either, except for the tab.
_UNFIT_FOR_ID = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

_decode_any = msgspec.json.Decoder(Raw).decode
_BOM = b"\xef\xbb\xbf"
_MEMBERS = (b'"jsonrpc"', b'"result"', b'"error"', b'"method"')  # of a message
_OVERHEAD = len(b"data: ")  # the most bytes before the data in a line


class ServerSentEvent(Struct, frozen=True, gc=False):
    """A server-sent event; an event with an id but no data only marks where to resume."""

    name: str
    data: bytes
    id: str  # the last id in the stream up to this event; "" if it had no id


def carries_message(event: ServerSentEvent) -> bool:
    """Return whether an event has a message of JSON-RPC, although it may be malformed.

    The name is "message", but some servers use names of their own. Some send "ping" or
    {"type":"heartbeat"} as an event without a name, which is not the answer to a request.
    """
    members = _MEMBERS if event.name == "message" else _MEMBERS[:1]
    return any(each in event.data for each in members)


def _is_json(data: bytes) -> bool:
    """Return whether data is one whole JSON value."""
    try:
        _decode_any(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


class SseParser:
    """Collects the bytes from one stream and returns complete events.

    Args:
        max_event_bytes: The limit for an event's data, and for each other line.

    Attributes:
        retry: The server's last delay before reconnecting, in seconds; None if it sent no delay.
        last_id: The id of the last complete event; "" if no event had an id.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self.retry: float | None = None
        self.last_id = ""
        self._max_bytes = max_event_bytes
        self._begin()

    def _begin(self) -> None:
        self._at_start = True
        self._is_document = False  # whether the stream is one JSON text, without fields
        self._after_cr = False
        self._line = bytearray()  # an incomplete line
        self._drop()

    def _drop(self) -> None:
        self._name = "message"
        self._data: bytes | bytearray | None = None  # None until a data line arrives
        self._id: str | None = None

    def resumed(self) -> SseParser:
        """Drop an incomplete event, before a new stream continues after `last_id`."""
        self._begin()
        return self

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Add a chunk of bytes, split anywhere; return the events that are now complete.

        An event without data is returned if it has a `data` or `id` line.

        Raises:
            MessageTooLarge: An event is over the limit, even if it is incomplete. The parser
                cannot be used afterwards.
        """
        if self._at_start and not self._line and chunk.startswith((b"{", b"[")):
            self._at_start, self._is_document = False, True
        if self._is_document:
            self._line += chunk
            if len(self._line) > self._max_bytes:
                raise self._too_large(len(self._line))
            return []
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if (self._line or self._at_start) and b"\n" in chunk:
            chunk = self._from_its_start(chunk)
        events: list[ServerSentEvent] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if start == end:
                self._end_event(events)
            elif chunk.startswith(b"data: ", start):
                self._add_data(chunk[start + 6 : end])
            else:
                self._add_field(chunk[start:end])
            start = end + 1
        if start < len(chunk):
            self._begin_line(chunk[start:])
        return events

    def finish(self) -> list[ServerSentEvent]:
        """Return the last event of a stream that has ended, if only its blank line is missing."""
        if self._is_document:
            self._data = self._line
        elif self._line.startswith((b"data:", _BOM + b"data:")):
            self.feed(b"\n")
        events: list[ServerSentEvent] = []
        if self._data is not None and _is_json(bytes(self._data)):
            self._id = None  # a client must not resume after an event that may have been cut off
            self._end_event(events)
        return events

    def _from_its_start(self, chunk: bytes) -> bytes:
        """Prepend the incomplete line to a chunk; strip a byte order mark at the stream's start."""
        if self._line:
            chunk = b"".join((self._line, chunk))
            self._line = bytearray()
        if self._at_start:
            chunk = chunk.removeprefix(_BOM)
            self._at_start = False
        return chunk

    def _begin_line(self, rest: bytes) -> None:
        self._line += rest
        mark = len(_BOM) if self._at_start and self._line.startswith(_BOM) else 0
        size = len(self._line) - mark
        if self._data is not None and self._line.startswith(b"data:", mark):
            size += len(self._data) + 1
        if size > self._max_bytes + _OVERHEAD:
            raise self._too_large(size)

    def _add_data(self, value: bytes) -> None:
        if self._data is None:
            self._data = value
        else:
            if not isinstance(self._data, bytearray):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += value
        if len(self._data) > self._max_bytes:
            raise self._too_large(len(self._data))

    def _add_field(self, line: bytes) -> None:
        if len(line) > self._max_bytes + _OVERHEAD:
            raise self._too_large(len(line))
        if line == b"event: message":
            self._name = "message"
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode(errors="replace") or "message"
        elif field == b"id":
            if not _UNFIT_FOR_ID.search(value):
                self._id = value.decode(errors="replace")
        elif field == b"retry":
            if value.isdigit():  # bytes.isdigit accepts 0 to 9 only
                self.retry = min(float(value) / 1000, MAX_RETRY)
        elif field == b"data":  # a data line without the space, or without data
            self._add_data(value)

    def _end_event(self, events: list[ServerSentEvent]) -> None:
        if self._id is not None:
            self.last_id = self._id
        if self._data is not None or self._id is not None:
            events.append(ServerSentEvent(self._name, bytes(self._data or b""), self.last_id))
        self._drop()

    def _too_large(self, size: int) -> MessageTooLarge:
        over, limit = size / 2**20, self._max_bytes / 2**20
        return MessageTooLarge(f"event of over {over:.1f} MiB (limit {limit:g} MiB)")
