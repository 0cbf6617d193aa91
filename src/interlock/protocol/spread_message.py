"""A message that a peer has printed over several lines, as pretty printers do.

A JSON text spread over lines has whole tokens in each line, because no string contains a newline.
So a line of text that is not JSON ends the collection, and brackets tell when the text is complete.
"""

from __future__ import annotations

import re

from interlock.protocol.envelope import MAX_DEPTH

MAX_BYTES = 16 * 2**20
PATIENCE = 10.0  # seconds between two lines of one message

# Possessive, so that the time is linear in the length of a line.
_TOKENS = re.compile(rb"""(?:[\s\[\]{}:,]|"(?:[^"\\]|\\.)*+"|[\d.eE+-]++|true|false|null)*+""")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')


class SpreadMessage:
    """Collects the lines of one message.

    Attributes:
        has_begun: Whether there are lines of a message that is not complete.
    """

    def __init__(self) -> None:
        self._text = bytearray()
        self._open = 0  # brackets that are not closed
        self._last = 0.0  # the time of the last line

    @property
    def has_begun(self) -> bool:
        return bool(self._text)

    @property
    def is_complete(self) -> bool:
        return self._open <= 0

    def begin(self, line: bytes, *, now: float) -> bool:
        """Begin a message with `line`; return False if the line cannot be its beginning."""
        text = line.strip()
        if not (text.startswith((b"{", b"[")) and text.endswith((b"{", b"[", b","))):
            return False
        if self._add(line, now) and not self.is_complete:
            return True
        self.take()
        return False

    def proceed(self, line: bytes, *, now: float) -> bool:
        """Add a line; return False if it does not belong to the message."""
        return now - self._last <= PATIENCE and self._add(line, now)

    def _add(self, line: bytes, now: float) -> bool:
        if len(self._text) + len(line) > MAX_BYTES or _TOKENS.fullmatch(line) is None:
            return False
        bare = _STRING.sub(b"", line)
        closed = bare.count(b"}") + bare.count(b"]")
        self._open += bare.count(b"{") + bare.count(b"[") - closed
        self._text += line
        self._text += b"\n"
        self._last = now
        return self._open <= MAX_DEPTH

    def take(self) -> bytes:
        """Return the collected lines, and drop them here."""
        whole = bytes(self._text)
        self._text, self._open = bytearray(), 0
        return whole
