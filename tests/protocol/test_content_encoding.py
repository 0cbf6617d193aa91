from __future__ import annotations

import gzip
import subprocess
import sys
import time
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import MessageTooLarge, RemoteProtocolError, StreamEnded
from interlock.protocol.content_encoding import PIECE, Inflater
from tests.support.rows import each_row

PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "raw deflate": lambda data: zlib.compress(data)[2:-4],
    "identity": bytes,
}
TEXT = b"".join(b'{"number": %d}, ' % number for number in range(20_000))


def pieces(inflater: Inflater, body: bytes, size: int = 0) -> list[bytes]:
    """Unpack a body that comes in chunks of a size; in one when it is 0."""
    size = size or len(body) or 1
    found = [
        piece
        for start in range(0, len(body), size)
        for piece in inflater.feed(body[start : start + size])
    ]
    inflater.finish()
    return found


def unpacked(encoding: str, body: bytes, size: int = 0, limit: int | None = None) -> bytes:
    return b"".join(pieces(Inflater(encoding, limit, "server"), body, size))


# Encodings


@each_row("packed", list(PACKERS))
@each_row("size", [0, 1, 2, 3, 1000, 16 * 1024, 64 * 1024])
def test_body_is_decompressed_from_any_chunks(packed: str, size: int):
    body = PACKERS[packed](TEXT[: 300 if size in (1, 2, 3) else None])

    assert TEXT.startswith(unpacked(packed.removeprefix("raw "), body, size))
    assert len(unpacked(packed.removeprefix("raw "), body, size)) in (300, len(TEXT))


@given(
    st.binary(max_size=300),
    st.sampled_from(list(PACKERS)),
    st.integers(0, 9),
    st.integers(1, 400),
)
def test_decompressed_content_equals_the_original(data: bytes, packed: str, level: int, size: int):
    if packed == "raw deflate":
        body = zlib.compress(data, level, wbits=-15)
    elif packed == "identity":
        body = data
    else:
        body = zlib.compress(data, level, wbits=31 if "gzip" in packed else 15)

    assert unpacked(packed.removeprefix("raw "), body, size) == data


@each_row("encoding", ["", "identity", "GZIP", " gzip\t", "X-Gzip", "Deflate"])
def test_content_encoding_is_case_insensitive(encoding: str):
    pack = PACKERS[encoding.strip().lower() or "identity"]

    assert unpacked(encoding, pack(b"data")) == b"data"
    assert unpacked("none", b"data") == b"data"


@each_row("body", [b'{"a":1}', b"data: 1\n\n", b": ping\n\n"])
@each_row("encoding", ["gzip", "utf-8", "UTF-8"])
def test_a_body_that_a_proxy_has_decompressed_is_read_under_its_old_label(
    encoding: str, body: bytes
):
    assert unpacked(encoding, body, 1) == body


@each_row("encoding", ["br", "zstd", "gzip, gzip", "identity, gzip", "x-deflate"])
def test_other_encodings_are_refused(encoding: str):
    with pytest.raises(RemoteProtocolError, match=f"unknown Content-Encoding '{encoding}'"):
        Inflater(encoding, None, "server")


def test_an_unknown_encoding_is_shown_in_one_short_line():
    with pytest.raises(RemoteProtocolError) as caught:
        Inflater("a\nb" * 100, None, "server")

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@each_row("size", [0, 1, 5])
def test_gzip_body_of_many_members_is_joined(size: int):
    body = (
        gzip.compress(b"one", mtime=0)
        + gzip.compress(b"", mtime=0)
        + gzip.compress(b"two", mtime=0)
    )

    assert unpacked("gzip", body, size) == b"onetwo"


def test_flushed_data_is_returned_at_once():
    """A stream of events does not wait for its end."""
    packer, inflater = zlib.compressobj(wbits=31), Inflater("gzip", None, "server")
    for number in range(3):
        event = b"data: %d\n\n" % number
        chunk = packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH)
        assert b"".join(inflater.feed(chunk)) == event


def test_last_bytes_held_back_by_zlib_are_returned():
    for size in range(PIECE, PIECE + 50):
        assert len(unpacked("deflate", PACKERS["raw deflate"](bytes(size)))) == size


def test_the_shortest_body_of_deflate_has_two_bytes():
    assert unpacked("deflate", b"\x03\x00") == b""


# Bad bodies


@each_row("packed", ["gzip", "deflate", "raw deflate"])
def test_body_that_was_cut_anywhere_is_refused(packed: str):
    body = PACKERS[packed](b"some data, " * 20)
    for end in range(1, len(body)):
        inflater = Inflater(packed.removeprefix("raw "), None, "server")
        list(inflater.feed(body[:end]))
        with pytest.raises(StreamEnded, match="server ended its answer in the middle of its "):
            inflater.finish()


def test_second_member_that_was_cut_is_refused():
    inflater = Inflater("gzip", None, "server")
    list(inflater.feed(gzip.compress(b"one", mtime=0) + gzip.compress(b"two", mtime=0)[:5]))

    with pytest.raises(StreamEnded):
        inflater.finish()


@each_row("encoding", ["gzip", "deflate", "identity"])
def test_empty_body_is_complete(encoding: str):
    inflater = Inflater(encoding, 0, "server")

    assert list(inflater.feed(b"")) == []
    inflater.finish()


@each_row("size", [0, 1])
@each_row(
    ("encoding", "body"),
    [
        ("gzip", zlib.compress(b"data")),
        ("gzip", gzip.compress(b"data", mtime=0) + b"garbage"),
        ("gzip", gzip.compress(b"data", mtime=0)[:-8] + bytes(8)),  # wrong sum
        ("deflate", b'{"jsonrpc":"2.0"}'),
        ("deflate", gzip.compress(b"data", mtime=0)),
        ("deflate", zlib.compress(b"data")[:-4] + bytes(4)),
        ("deflate", zlib.compress(b"data") + zlib.compress(b"data")),
        ("deflate", zlib.compress(b"data") + b"x"),
        ("deflate", b"\x78\x9c\xff\xff"),
    ],
)
def test_body_not_in_its_encoding_is_refused(encoding: str, body: bytes, size: int):
    with pytest.raises(RemoteProtocolError, match=f"server sent .*{encoding}"):
        unpacked(encoding, body, size)


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate"]), st.integers(0, 40))
def test_garbage_raises_nothing_but_our_errors(garbage: bytes, encoding: str, good: int):
    body = PACKERS[encoding](b"some data")[:good] + garbage
    with suppress(RemoteProtocolError, StreamEnded):
        unpacked(encoding, body, 7, limit=1000)


# Bounds


@each_row("packed", list(PACKERS))
@each_row(("size", "length"), [(0, len(TEXT)), (1, 500), (100, PIECE), (0, 0)])
def test_a_body_at_the_limit_is_accepted_and_one_byte_more_is_refused(
    packed: str, size: int, length: int
):
    encoding, text = packed.removeprefix("raw "), TEXT[:length]

    assert unpacked(encoding, PACKERS[packed](text), size, limit=length) == text
    with pytest.raises(MessageTooLarge):
        unpacked(encoding, PACKERS[packed](text + b"x"), size, limit=length)


def test_error_about_a_body_over_the_limit_states_the_limit():
    with pytest.raises(MessageTooLarge, match=r"server sent a body over the limit \(1 MiB\)"):
        unpacked("gzip", gzip.compress(bytes(2**21)), limit=2**20)


@each_row("encoding", ["gzip", "deflate", "identity"])
def test_output_is_returned_in_small_pieces(encoding: str):
    body = PACKERS[encoding](bytes(2**21))
    found = pieces(Inflater(encoding, None, "server"), body)

    assert max(map(len, found)) <= PIECE
    assert sum(map(len, found)) == 2**21


@each_row("encoding", ["gzip", "deflate"])
def test_output_before_the_refusal_is_within_the_limit(encoding: str):
    found: list[bytes] = []
    with pytest.raises(MessageTooLarge):
        found.extend(Inflater(encoding, 100_000, "server").feed(PACKERS[encoding](bytes(2**24))))

    assert 100_000 - PIECE <= sum(map(len, found)) <= 100_000


_BOMB = """
import resource, zlib
from interlock.errors import MessageTooLarge
from interlock.protocol.content_encoding import Inflater

packer = zlib.compressobj(9, wbits=-15)
block = packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH)
bomb = b"\\x1f\\x8b\\x08" + bytes(7) + block * 400  # gzip, but for the sum at its end
assert len(bomb) < 2**19
limit = {limit}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept, read = [], 0
try:
    for piece in Inflater("gzip", limit, "server").feed(bomb):
        read += len(piece)
        if limit is not None:
            kept.append(piece)
    print("passed", end=" ")
except MessageTooLarge:
    print("refused", end=" ")
print(read, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow("400 MB")
@each_row(("limit", "outcome", "growth"), [(2**24, "refused", 24), (None, "passed", 4)])
def test_bomb_of_400_mb_is_refused_in_little_memory(limit: int | None, outcome: str, growth: int):
    """R-44: refused at the limit; a stream without limit holds one piece at a time."""
    code = _BOMB.format(limit=limit)
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    said, read, kibibytes = shown.stdout.split()
    assert said == outcome
    assert int(read) <= (limit or 400 * 2**20)
    assert int(kibibytes) < growth * 1024


@pytest.mark.slow("works through much data")
@each_row(
    "body",
    [gzip.compress(b"", mtime=0) * 100_000, gzip.compress(bytes(2**26)) * 2],
    ids=["2 MB of empty members", "128 MiB of zeros"],
)
def test_cost_is_linear_in_the_size_of_input_and_output(body: bytes):
    """Some 0.3 s; what is left of a chunk is copied for each piece, and must not be much."""
    begin = time.process_time()
    unpacked_bytes = sum(map(len, Inflater("gzip", None, "server").feed(body)))

    assert unpacked_bytes in (0, 2**27)
    assert time.process_time() - begin < 5
