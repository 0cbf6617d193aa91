"""Bytes -> lines, with a bound on the length and a cost linear in it."""

from __future__ import annotations

from interlock.errors import MessageTooLarge


class LineSplitter:
    """Collects bytes and gives back whole lines, without their newline.

    Args:
        max_bytes: Longest line accepted, in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []  # the beginning of a line whose end has not come
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and take the lines that are now complete. Blank lines are left out.

        Raises:
            MessageTooLarge: A line is over the limit, whether its end has come or not.
                What follows it cannot be framed any more.
        """
        *ended, rest = data.split(b"\n")
        if ended and self._parts:
            self._parts.append(ended[0])
            ended[0] = b"".join(self._parts)
            self._parts.clear()
            self._size = 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        longest = max(map(len, ended), default=0)
        if max(longest, self._size) > self._max_bytes:
            size = max(longest, self._size) / 2**20
            limit = self._max_bytes / 2**20
            raise MessageTooLarge(f"message of over {size:.1f} MiB; the limit is {limit:g} MiB")
        return [line.removesuffix(b"\r") for line in ended if line and line != b"\r"]
