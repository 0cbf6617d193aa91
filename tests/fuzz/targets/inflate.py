"""Unpacking: what comes out is what zlib says, in small pieces, and never more than the limit."""

from __future__ import annotations

import gzip
import zlib

from interlock.errors import MessageTooLarge, RemoteProtocolError, StreamEnded
from interlock.protocol.content_encoding import PIECE, Inflater
from tests.fuzz.choices import Choices

TOKENS = [b"\x1f\x8b\x08\x00", b"\x78\x9c", b"\x78\xda", b"\x00\x00\xff\xff", b"\x03\x00", b"\x01"]
ENCODINGS = ["gzip", "deflate", "", "identity", " GZip ", "x-gzip", "br", "gzip, gzip"]


def target(data: bytes) -> None:
    choices = Choices(data)
    encoding = choices.one_of(ENCODINGS)
    limit = choices.one_of([None, 10, 1000, 2**20])
    cuts, kind, repeated = choices.bytes(20), choices.number(5), choices.number(10_000)
    body = choices.rest()
    packed = [body, gzip.compress(body, mtime=0), zlib.compress(body), deflate(body), b""][kind]
    if choices.flag():
        packed += packed
    if kind == 4:  # much from little
        packed = gzip.compress(body[:50] * repeated, mtime=0)
    whole = unpack(encoding, limit, [packed])
    assert unpack(encoding, limit, Choices(cuts).pieces(packed)) == whole
    plain, problem = whole
    if problem is None:
        assert plain == reference(encoding.strip().lower(), packed)
    elif problem is MessageTooLarge:
        assert limit is not None


def unpack(encoding: str, limit: int | None, pieces: list[bytes]) -> tuple[bytes, type | None]:
    """Unpack pieces; give what came out before a problem, if there was one, and its class."""
    out = bytearray()
    try:
        inflater = Inflater(encoding, limit, "a server")
        for piece in pieces:
            for part in inflater.feed(piece):
                assert 0 < len(part) <= PIECE
                out += part
                assert limit is None or len(out) <= limit
        inflater.finish()
    except (MessageTooLarge, RemoteProtocolError, StreamEnded) as error:
        # How much comes before a problem depends on the pieces.
        return b"", type(error)
    return bytes(out), None


def reference(encoding: str, packed: bytes) -> bytes:
    if not packed or encoding in ("", "identity"):
        return packed
    if encoding in ("gzip", "x-gzip"):
        return gzip.decompress(packed)
    try:
        return zlib.decompress(packed)
    except zlib.error:
        return zlib.decompress(packed, -15)


def deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()
