"""Parts of a long text: whole lines or array items if possible, and always whole characters.

A size is the number of bytes that a text takes in a JSON message, as UTF-8 with escapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from interlock.protocol.envelope import encode_lossy

Unit = Literal["lines", "characters", "items", "bytes"]

_ESCAPED = (b'"', b"\\", b"\n", b"\t", b"\r")  # bytes in JSON text that need an escape
_decode_items = msgspec.json.Decoder(list[Raw]).decode


class Part(Struct, frozen=True):
    """A part of a text or a JSON array.

    Attributes:
        text: The text of the part.
        unit: The unit in which `first`, `last` and `total` are counted, starting at 1.
        line: The number of the next line; None if the part ends within a line or in an array.
        offset: The index of the next character or item.
    """

    text: str
    unit: Unit
    first: int
    last: int
    total: int
    line: int | None
    offset: int

    @property
    def following(self) -> dict[str, object]:
        """The arguments with which the tool `read_result` continues after this part."""
        if self.unit == "items":
            return {"pointer": "", "offset": self.offset}
        return {"offset": self.offset} if self.line is None else {"line": self.line}

    @property
    def is_last(self) -> bool:
        return self.last >= self.total


def items_of(text: str) -> list[Raw] | None:
    """Return a JSON array's encoded items; None if the text is not a JSON array."""
    if not text[:1_000].lstrip().startswith("["):
        return None
    try:
        return _decode_items(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def part_of_items(items: Sequence[Raw], start: int, size: int, most: int | None) -> Part | None:
    """Return items from `start` on as a JSON array; None if the first item is too large.

    Args:
        items: The encoded items.
        start: The index of the first item.
        size: The maximum size of the part.
        most: The maximum number of items; None for no limit.
    """
    limit = len(items) if most is None else min(len(items), start + most)
    taken: list[str] = []
    left = size - 2
    for item in items[start:limit]:
        encoded = bytes(item)
        left -= len(encoded) + sum(map(encoded.count, _ESCAPED)) + 1
        if left < 0:
            break
        taken.append(encoded.decode("utf-8", "replace"))
    if not taken and start < limit:
        return None
    end = start + len(taken)
    return Part(f"[{','.join(taken)}]", "items", start + 1, end, len(items), None, end)


def part_of_text(
    text: str,
    start: int,
    size: int,
    *,
    lines: int | None = None,
    characters: int | None = None,
) -> Part:
    """Return a part of a text, which ends at a line's end unless the first line is too long.

    Args:
        text: The whole text.
        start: The index of the first character.
        size: The maximum size of the part.
        lines: The maximum number of lines; None for no limit.
        characters: The maximum number of characters; None to end the part at a line's end.
    """
    end = _end_within(text, start, size)
    if characters is not None:
        end = min(end, start + characters)
    elif end < len(text):
        end = text.rfind("\n", start, end) + 1 or end
    if lines is not None:
        end = min(end, _after_lines(text, start, lines))
    part = text[start:end]
    begins, ends = _begins_line(text, start), _begins_line(text, end)
    if not (begins and (ends or end == len(text))):
        line = line_at(text, end) if ends else None
        return Part(part, "characters", start + 1, end, len(text), line, end)
    first = line_at(text, start)
    count = part.count("\n") + (not part.endswith("\n") and bool(part))
    return Part(part, "lines", first, first + count - 1, lines_in(text), first + count, end)


def line_at(text: str, index: int) -> int:
    """Return the number, starting at 1, of the line that contains a character."""
    return text.count("\n", 0, index) + 1


def lines_in(text: str) -> int:
    """Return the number of lines in a text."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def start_of_line(text: str, line: int) -> int | None:
    """Return the index at which a line begins; None if the text has fewer lines."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
        if not start:
            return None
    return start


def _begins_line(text: str, index: int) -> bool:
    return index == 0 or text[index - 1] == "\n"


def _after_lines(text: str, start: int, lines: int) -> int:
    end = start
    for _ in range(lines):
        end = text.find("\n", end) + 1
        if not end:
            return len(text)
    return end


def _end_within(text: str, start: int, size: int) -> int:
    """Return where a part that begins at `start` ends: after at most `size` bytes.

    A part has at least one character, even if the character takes more bytes.
    """
    piece = text[start : start + size]
    if _size(piece) <= size:
        return start + len(piece)
    low, high = 1, len(piece)  # a piece of `low` characters is small enough
    while low < high:
        middle = (low + high + 1) // 2
        if _size(piece[:middle]) <= size:
            low = middle
        else:
            high = middle - 1
    return start + low


def _size(text: str) -> int:
    return len(encode_lossy(text)) - 2
