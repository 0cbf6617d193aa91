"""Lines of stdio that are not one message each.

A program may print a message over several lines, as pretty printers do, several messages on one
line, or a text before a message. A JSON text spread over lines has whole tokens in each line,
because no string contains a newline. So a line of text that is not JSON ends the collection, and
brackets tell when the text is complete.
"""

from __future__ import annotations

import json
import re

from msgspec import UNSET

from interlock.errors import ParseError
from interlock.protocol import envelope
from interlock.types import RequestId

MAX_BYTES = 16 * 2**20
PATIENCE = 10.0  # seconds between two lines of one message
WRONG_FRAMING = (
    "the peer frames its messages by Content-Length headers, as in the Language Server Protocol; "
    "MCP on stdio needs each message on one line, without headers"
)

_CONTENT_LENGTH = re.compile(rb"content-length\s*:\s*\d+\s*", re.IGNORECASE)
# Possessive, so that the time is linear in the length of a line.
_TOKENS = re.compile(rb"""(?:[\s\[\]{}:,]|"(?:[^"\\]|\\.)*+"|[\d.eE+-]++|true|false|null)*+""")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"')
_BEGINNING = re.compile(r'\{\s*"(?:jsonrpc|id|method|result|error|params)"\s*:')
_BLANKS = re.compile(r"\s*")
_scan = json.JSONDecoder(parse_int=len, parse_float=len).raw_decode


def is_header(line: bytes) -> bool:
    """Return whether the peer frames its messages by headers; see `WRONG_FRAMING`."""
    return _CONTENT_LENGTH.fullmatch(line) is not None


class OddLines:
    """Finds the messages in lines that are not one message each.

    Args:
        splits: Whether a line may have several messages, or text before one. A server refuses
            such lines.
    """

    def __init__(self, *, splits: bool) -> None:
        self._splits = splits
        self._text = bytearray()  # the lines of a message that is not complete
        self._open = 0  # its brackets that are not closed
        self._last = 0.0  # the time of its last line

    def read(
        self, line: bytes, *, now: float, awaited: RequestId | None
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the messages that a line completes, and what is not part of a message.

        Args:
            line: A line that is not a message.
            now: The time, in seconds of the monotonic clock.
            awaited: The id of the only open request; None if there is none, or more.
        """
        dropped = []
        if self._text:
            if now - self._last <= PATIENCE and self._add(line, now):
                return ([] if self._open > 0 else [self._take()]), []
            dropped.append(self._take())
        elif self._splits and (messages := messages_on(line, awaited)):
            return messages, []
        if not self._begin(line, now):
            dropped.append(line)
        return [], dropped

    def _begin(self, line: bytes, now: float) -> bool:
        text = line.strip()
        if not (text.startswith((b"{", b"[")) and text.endswith((b"{", b"[", b","))):
            return False
        if self._add(line, now) and self._open > 0:
            return True
        self._take()
        return False

    def _add(self, line: bytes, now: float) -> bool:
        if len(self._text) + len(line) > MAX_BYTES or _TOKENS.fullmatch(line) is None:
            return False
        bare = _STRING.sub(b"", line)
        closed = bare.count(b"}") + bare.count(b"]")
        self._open += bare.count(b"{") + bare.count(b"[") - closed
        self._text += line
        self._text += b"\n"
        self._last = now
        return self._open <= envelope.MAX_DEPTH

    def _take(self) -> bytes:
        whole = bytes(self._text)
        self._text, self._open = bytearray(), 0
        return whole


def messages_on(line: bytes, awaited: RequestId | None) -> list[bytes]:
    """Return the messages on a line with several ones, or with text before the only one.

    Text may be a log that repeats any message, also one that another user has made up. So the
    message after it counts only as the answer to the request `awaited`.
    """
    text, messages = split(line)
    if not text:
        return messages if len(messages) > 1 else []
    if len(messages) != 1 or awaited is None:
        return []
    try:
        answer = envelope.decode(messages[0])
    except ParseError:
        return []
    return messages if answer.method is UNSET and answer.id == awaited else []


def split(line: bytes) -> tuple[str, list[bytes]]:
    """Return the text before the first message on a line, and the messages, which end the line.

    There are no messages if anything else follows them, or if they are more than `MAX_BATCH`.
    """
    try:
        text = line.decode()
        found = _BEGINNING.search(text)
        begin = at = len(text) if found is None else found.start()
        messages = []
        while at < len(text):
            _, end = _scan(text, at)
            messages.append(text[at:end].encode())
            if len(messages) > envelope.MAX_BATCH:
                return "", []
            blanks = _BLANKS.match(text, end)
            at = end if blanks is None else blanks.end()
    except (ValueError, RecursionError):
        return "", []
    return text[:begin].strip(), messages
