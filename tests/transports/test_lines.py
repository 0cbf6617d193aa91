from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import MessageTooLarge
from interlock.protocol.envelope import Cut
from interlock.transports.lines import LineSplitter, separately
from tests.support.rows import each_row

PIECES = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"a\nb", b"\xff"]) | st.binary(max_size=6)
)


@settings(derandomize=True, database=None)
@given(PIECES)
def test_lines_do_not_depend_on_the_chunks(pieces: list[bytes]):
    splitter = LineSplitter(1000)
    lines = [line for piece in pieces for line in splitter.feed(piece)]

    ended = b"".join(pieces).split(b"\n")[:-1]
    assert lines == [line.removesuffix(b"\r") for line in ended if line not in (b"", b"\r")]


def test_only_the_newline_ends_a_line():
    text = "a\u2028b\u0085c\x0bd\re".encode()

    assert LineSplitter(100).feed(text + b"\n") == [text]


@each_row("chunk", [1, 7, 100])
def test_a_line_of_the_limit_passes_and_one_byte_more_does_not(chunk: int):
    def feed(data: bytes) -> list[bytes]:
        splitter = LineSplitter(50)
        pieces = [data[place : place + chunk] for place in range(0, len(data), chunk)]
        return [line for piece in pieces for line in splitter.feed(piece)]

    assert feed(b"x" * 50 + b"\n") == [b"x" * 50]
    with pytest.raises(MessageTooLarge):
        feed(b"x" * 51 + b"\n")
    with pytest.raises(MessageTooLarge):
        feed(b"x" * 51)


def test_long_line_between_short_ones_is_refused():
    with pytest.raises(MessageTooLarge):
        LineSplitter(5).feed(b"a\n" + b"x" * 6 + b"\nb\n")


@pytest.mark.slow("works through much data")
def test_a_line_in_tiny_pieces_takes_no_more_memory_than_three_times_its_limit():
    """R-03: a slow drip must not cost more than a flood."""
    limit = 2**16
    splitter = LineSplitter(limit)
    tracemalloc.start()
    for _ in range(limit // 2):
        splitter.feed(bytes(bytearray(b"xy")))  # a new object each time, as from a pipe
    assert splitter.feed(b"\n") == [b"xy" * (limit // 2)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 3 * limit


def test_error_about_a_line_over_the_limit_states_the_limit():
    with pytest.raises(MessageTooLarge, match=r"message of over 2\.0 MiB \(limit 1 MiB\)"):
        LineSplitter(2**20).feed(b"x" * 2**21)


class Full(bytearray):
    """A line that cannot grow for lack of memory."""

    def __iadd__(self, data: object) -> Full:
        raise MemoryError


def test_line_is_cut_if_memory_is_exhausted_and_the_next_line_is_whole():
    splitter = LineSplitter(10_000)
    splitter._begun = Full(b'{"id":1' + b"x" * 2_000)

    assert splitter.feed(b"more") == []
    assert splitter.feed(b"and more") == []
    cut, *others = splitter.feed(b"the end\nnext\n\r\nlast")
    assert cut == (b'{"id":1' + b"x" * 2_000)[:1_000]
    assert isinstance(cut, Cut)
    assert others == [b"next"]
    assert splitter.feed(b" one\n") == [b"last one"]


def test_received_bytes_raise_memory_error_if_memory_is_exhausted():
    splitter = LineSplitter(10_000)
    splitter._begun = Full()

    with pytest.raises(MemoryError):
        splitter.feed(b"x")


def test_lines_can_be_written_without_a_copy():
    assert b"".join(separately([b"a", b"bc"])) == b"a\nbc\n"
