"""Split bytes into lines of limited length, in time linear in the number of bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from interlock.errors import MessageTooLarge
from interlock.protocol.envelope import Cut

_KEPT = 1_000  # bytes kept of a line that is too large for the memory: enough for a message's id


class _CutLine(bytearray):
    """The beginning of a line whose other bytes are dropped."""

    def __iadd__(self, data: object) -> Self:
        return self


class LineSplitter:
    """Collects bytes and returns complete lines, without their newline.

    Args:
        max_bytes: The longest accepted line, in bytes.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._begun = bytearray()  # an incomplete line

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the lines that are now complete, except for blank lines.

        A line that is too large for the memory is returned as a `Cut` with its beginning.

        Raises:
            MessageTooLarge: A line is over the limit, even if it is incomplete. The splitter
                cannot be used afterwards.
            MemoryError: The bytes do not fit into memory. The splitter cannot be used afterwards.
        """
        try:
            if b"\n" not in data:
                self._begun += data
                if len(self._begun) > self._max_bytes:
                    raise self._too_large(len(self._begun))
                return []
            *ended, rest = data.split(b"\n")
            if self._begun:
                if isinstance(self._begun, _CutLine):
                    return self._cut(data)
                self._begun += ended[0]
                ended[0] = bytes(self._begun)
                self._begun = bytearray()
        except MemoryError:
            if not self._begun:
                raise
            return self._cut(data)
        self._begun += rest
        longest = max(len(self._begun), *map(len, ended))
        if longest > self._max_bytes:
            raise self._too_large(longest)
        split_end = ended[0].endswith(b"\r")  # CR came in an earlier chunk than its LF
        if b"" not in ended and b"\r" not in data and not split_end:
            return ended
        return [line.removesuffix(b"\r") for line in ended if line and line != b"\r"]

    def rest(self) -> bytes:
        """Return the line that has begun, after the end of the input."""
        begun, self._begun = self._begun, bytearray()
        return b"" if isinstance(begun, _CutLine) else bytes(begun)

    def _cut(self, data: bytes) -> list[bytes]:
        """Keep only the beginning of the incomplete line, and continue with the next line."""
        self._begun = _CutLine(self._begun[:_KEPT])
        _, newline, rest = data.partition(b"\n")
        if not newline:
            return []
        beginning, self._begun = Cut(self._begun), bytearray()
        return [beginning, *self.feed(rest)]

    def _too_large(self, size: int) -> MessageTooLarge:
        limit = self._max_bytes / 2**20
        return MessageTooLarge(f"message of over {size / 2**20:.1f} MiB (limit {limit:g} MiB)")


def separately(frames: Iterable[bytes]) -> list[memoryview]:
    """Return frames as lines in pieces that share the frames' memory, for low memory."""
    return [memoryview(piece) for frame in frames for piece in (frame, b"\n")]
