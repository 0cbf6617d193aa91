"""Decompress HTTP bodies while they arrive, with a limit on the decompressed size.

A body of 0.4 MB can decompress to 400 MB, so decompression stops at the limit and yields small
pieces.

RFC 9110, section 8.4.1; RFC 1950 to 1952.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from interlock.errors import MessageTooLarge, RemoteProtocolError, StreamEnded
from interlock.text.quoting import clip

PIECE = 64 * 1024  # bytes in the largest piece of output
SLICE = 16 * 1024  # bytes of input per call, because each call to zlib copies unused input

_KNOWN = {
    "": "identity",
    "identity": "identity",
    "none": "identity",  # this one and the next are not valid, but some servers send them
    "utf-8": "identity",
    "gzip": "gzip",
    "x-gzip": "gzip",
    "deflate": "deflate",
}
# The first bytes of JSON and of event streams. Proxies decompress a body and keep its label:
# https://github.com/neutree-ai/agent-platform/pull/224
_PLAIN = b"{[ \t\r\n:deir\xef"
_GZIP, _ZLIB, _RAW = 31, 15, -15  # zlib's numbers (wbits) for its stream formats


class Inflater:
    """Decompresses one body.

    Args:
        encoding: The value of the header Content-Encoding; "" if the header is missing.
        max_bytes: The limit for the decompressed body; None for an endless stream.
        what: The server's name for error messages.

    Raises:
        RemoteProtocolError: The encoding is not gzip, deflate or identity.
    """

    def __init__(self, encoding: str, max_bytes: int | None, what: str) -> None:
        self._encoding = _KNOWN.get(encoding.strip().lower(), "")
        self._at_start = True
        if not self._encoding:
            raise RemoteProtocolError(
                f"{what} sent an answer with unknown Content-Encoding {clip(encoding)!r};"
                " gzip and deflate are supported"
            )
        self._max_bytes = max_bytes
        self._what = what
        self._size = 0  # bytes of output so far
        self._stream: zlib._Decompress | None = None  # the stream in progress
        self._begun = b""  # the first byte, kept until a second byte shows the stream's format
        self._is_over = False  # whether the only stream of a deflate body has ended

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the decompressed chunk in pieces of at most `PIECE` bytes; iterate to the end.

        Raises:
            MessageTooLarge: The output is over the limit.
            RemoteProtocolError: The body is not valid in its encoding.
        """
        for start in range(0, len(chunk), SLICE):
            part = chunk[start : start + SLICE]
            if self._at_start:
                self._at_start = False
                if self._encoding == "gzip" and part[0] in _PLAIN:
                    self._encoding = "identity"
            for piece in (part,) if self._encoding == "identity" else self._unpack(part):
                self._size += len(piece)
                if self._max_bytes is not None and self._size > self._max_bytes:
                    limit = f"{self._max_bytes / 2**20:g} MiB"
                    raise MessageTooLarge(f"{self._what} sent a body over the limit ({limit})")
                yield piece

    def finish(self) -> None:
        """Check that the body is complete. An empty body is complete in every encoding.

        Raises:
            StreamEnded: The body was cut off.
        """
        if self._stream is not None or self._begun:
            raise StreamEnded(
                f"{self._what} ended its answer in the middle of its {self._encoding} stream"
            )

    def _unpack(self, data: bytes) -> Iterator[bytes]:
        more = bool(data)
        while more:
            if self._stream is None:
                data = self._begin(data)
                if self._stream is None:
                    return
            # One byte over the limit is enough to detect that the body is too large.
            room = PIECE if self._max_bytes is None else self._max_bytes - self._size + 1
            room = min(room, PIECE)
            try:
                piece = self._stream.decompress(data, room)
            except zlib.error:
                raise RemoteProtocolError(
                    f"{self._what} sent a body that is not valid {self._encoding}"
                ) from None
            if self._stream.eof:
                data = self._stream.unused_data
                self._stream = None
                self._is_over = self._encoding == "deflate"
                more = bool(data)
            else:
                data = self._stream.unconsumed_tail
                more = bool(data) or len(piece) == room  # zlib may have more output
            if piece:
                yield piece

    def _begin(self, data: bytes) -> bytes:
        """Open a stream once two bytes show its format; return the bytes so far."""
        if self._encoding == "gzip":
            self._stream = zlib.decompressobj(_GZIP)
            return data
        if self._is_over:
            raise RemoteProtocolError(f"{self._what} sent data after the end of its deflate body")
        data = self._begun + data
        if len(data) < 2:
            self._begun = data
            return b""
        self._begun = b""
        # HTTP's deflate has a zlib header, but many servers leave it out.
        with_header = data[0] & 15 == 8 and int.from_bytes(data[:2], "big") % 31 == 0
        self._stream = zlib.decompressobj(_ZLIB if with_header else _RAW)
        return data
