"""Unpacking HTTP bodies while they come, and counting what comes out.

0.4 MB can unpack to 400 MB: nothing is unpacked beyond the limit, and never much at once.

RFC 9110, section 8.4.1; RFC 1950 to 1952.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from interlock.errors import MessageTooLarge, RemoteProtocolError, StreamEnded
from interlock.quoting import clip

PIECE = 64 * 1024  # bytes that come out at once, at most
SLICE = 16 * 1024  # bytes that go in at once: zlib copies what it leaves of them each time

_KNOWN = {
    "": "identity",
    "identity": "identity",
    "none": "identity",  # no word of HTTP, but of some servers
    "gzip": "gzip",
    "x-gzip": "gzip",
    "deflate": "deflate",
}
_GZIP, _ZLIB, _RAW = 31, 15, -15  # kinds of streams, in the numbers that zlib has for them


class Inflater:
    """Unpacks one body.

    Args:
        encoding: Value of the header Content-Encoding; "" for none.
        max_bytes: Most bytes of the unpacked body; None for a stream that may go on for ever.
        what: Whose body it is, for messages.

    Raises:
        RemoteProtocolError: An encoding other than gzip, deflate and identity.
    """

    def __init__(self, encoding: str, max_bytes: int | None, what: str) -> None:
        self._encoding = _KNOWN.get(encoding.strip().lower(), "")
        if not self._encoding:
            raise RemoteProtocolError(
                f"{what} packs its answer with {clip(encoding)!r}, not with gzip or deflate"
            )
        self._max_bytes = max_bytes
        self._what = what
        self._size = 0  # bytes that have come out
        self._stream: zlib._Decompress | None = None  # what is being unpacked
        self._begun = b""  # a first byte, which does not yet say what it begins
        self._is_over = False  # a body of deflate is one stream; one of gzip may be many

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Unpack a chunk, into pieces of at most `PIECE` bytes. Lazy: take them all.

        Raises:
            MessageTooLarge: The limit is passed.
            RemoteProtocolError: It is not what the encoding says.
        """
        for start in range(0, len(chunk), SLICE):
            part = chunk[start : start + SLICE]
            for piece in (part,) if self._encoding == "identity" else self._unpack(part):
                self._size += len(piece)
                if self._max_bytes is not None and self._size > self._max_bytes:
                    limit = f"{self._max_bytes / 2**20:g} MiB"
                    raise MessageTooLarge(f"{self._what} sends over {limit}, which is the limit")
                yield piece

    def finish(self) -> None:
        """Say that the body has ended. An empty one is whole, whatever the encoding.

        Raises:
            StreamEnded: It was cut off.
        """
        if self._stream is not None or self._begun:
            raise StreamEnded(
                f"{self._what} ended its answer before the end of its {self._encoding}"
            )

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        more = bool(data)
        while more:
            if self._stream is None:
                data = self._begin(data)
                if self._stream is None:
                    return
            # One byte over the limit is enough to know.
            room = PIECE if self._max_bytes is None else self._max_bytes - self._size + 1
            room = min(room, PIECE)
            try:
                piece = self._stream.decompress(data, room)
            except zlib.error:
                raise RemoteProtocolError(
                    f"{self._what} sends a body that is not {self._encoding}, as it says"
                ) from None
            if self._stream.eof:
                data = self._stream.unused_data
                self._stream = None
                self._is_over = self._encoding == "deflate"
                more = bool(data)
            else:
                data = self._stream.unconsumed_tail
                more = bool(data) or len(piece) == room  # zlib may hold more than there was room
            if piece:
                yield piece

    def _begin(self, data: bytes) -> bytes:
        """Find out what begins here, if that can be told yet; give what to unpack."""
        if self._encoding == "gzip":
            self._stream = zlib.decompressobj(_GZIP)
            return data
        if self._is_over:
            raise RemoteProtocolError(f"{self._what} sends more after the end of its deflate")
        data = self._begun + data
        if len(data) < 2:
            self._begun = data
            return b""
        self._begun = b""
        # Deflate has the zlib header, says HTTP; half of the world leaves it out.
        with_header = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
        self._stream = zlib.decompressobj(_ZLIB if with_header else _RAW)
        return data
