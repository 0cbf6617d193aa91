from __future__ import annotations

import json
import re
import time
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from interlock.errors import MessageTooLarge
from interlock.protocol.event_stream import MAX_RETRY, ServerSentEvent, SseParser
from interlock.server.http import streams
from tests.support.rows import each_row

LIMIT = 2**24
BOM = b"\xef\xbb\xbf"


def parse(stream: bytes, size: int = 0) -> list[ServerSentEvent]:
    """Feed a stream in chunks of a size; in one when it is 0."""
    parser, size = SseParser(LIMIT), size or len(stream) or 1
    return [
        event
        for start in range(0, len(stream), size)
        for event in parser.feed(stream[start : start + size])
    ]


def data_of(stream: bytes) -> list[bytes]:
    return [event.data for event in parse(stream)]


# Against the standard, read slowly


def reference(stream: bytes) -> tuple[list[ServerSentEvent], str, float | None]:
    """Parse a whole stream as the standard tells it, step by step: events, last id, retry."""
    if stream.startswith(BOM):
        stream = stream[3:]
    if stream.startswith((b"{", b"[")):  # not a stream at all
        return [], "", None
    lines = re.split(rb"\r\n|\r|\n", stream)[:-1]  # an unfinished line does not count
    events: list[ServerSentEvent] = []
    retry: float | None = None
    last_id = buffer = ""
    data, has_data, has_id, name = b"", False, False, ""
    for line in lines:
        if line == b"":
            last_id = buffer
            if has_data or has_id:
                shown = data[:-1] if data.endswith(b"\n") else data
                events.append(ServerSentEvent(name or "message", shown, last_id))
            data, has_data, has_id, name = b"", False, False, ""
            continue
        if line.startswith(b":"):
            continue
        if b":" in line:
            field, value = line.split(b":", 1)
            if value.startswith(b" "):
                value = value[1:]
        else:
            field, value = line, b""
        if field == b"event":
            name = value.decode(errors="replace")
        elif field == b"data":
            data, has_data = data + value + b"\n", True
        elif field == b"id":
            if all(byte == 9 or 31 < byte != 127 for byte in value):  # the standard: not 0
                buffer, has_id = value.decode(errors="replace"), True
        elif field == b"retry" and value and all(byte in b"0123456789" for byte in value):
            retry = min(int(value) / 1000, MAX_RETRY)
    return events, last_id, retry


ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
FIELDS = st.sampled_from(
    [b"data", b"data", b"id", b"event", b"retry", b"", b"other", BOM + b"data"]
)
COLONS = st.sampled_from([b": ", b":", b"", b" :", b":  "])
BITS = ["", "x", "7", "{}", "message", ":", " ", "\0", "\x1b", "\x7f", "é", "٣", "\ufeff"]
VALUES = st.sampled_from(
    [*(text.encode() for text in [*BITS, "\u2028", "\x85", "\x0b\x0c\x1c"]), b"\xef", b"\xff"]
)
LINES = st.tuples(FIELDS, COLONS, VALUES, ENDS).map(b"".join)
STREAMS = st.lists(LINES | ENDS | ENDS | VALUES | st.just(BOM) | st.binary(max_size=3)).map(
    b"".join
)


@pytest.mark.slow("tries many examples")
@settings(max_examples=100)
@given(STREAMS, st.lists(st.integers(0, 60), max_size=12))
@example(b"data: a\r\r\n\ndata: b\n\r\n", [8, 9])
@example(b"data: a\r\n\r\n", [8, 9, 10])
@example(BOM + b"data: a\n\n", [1, 2])
@example(BOM + BOM + b"data: a\n\n", [])
@example(b"id: 1\n\nid: 2\n", [])
def test_stream_in_any_chunks_is_parsed_as_the_standard_says(stream: bytes, cuts: list[int]):
    parser, events = SseParser(LIMIT), []
    places = [0, *sorted(cuts), len(stream)]
    for start, end in pairwise(places):
        events += parser.feed(stream[start:end])

    assert (events, parser.last_id, parser.retry) == reference(stream)


@given(STREAMS)
def test_input_in_single_bytes_gives_the_same_result(stream: bytes):
    assert parse(stream, 1) == parse(stream)


@given(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"])))
@example("\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\x00")
@example("\ufeff")
def test_text_without_line_breaks_is_parsed_from_single_bytes(text: str):
    """R-10: nothing but CR and LF ends a line, and UTF-8 survives any chunking."""
    (event,) = parse(b"data: " + text.encode() + b"\n\n", 1)

    assert event.data.decode() == text


@given(st.text(), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_line_breaks_within_data_come_back_as_newlines(text: str, end: bytes):
    lines = re.split("\r\n|\r|\n", text)
    stream = b"".join(b"data: " + line.encode() + end for line in lines) + end

    assert data_of(stream + end) == ["\n".join(lines).encode()]


@given(
    st.dictionaries(st.text(max_size=5), st.text() | st.floats(allow_nan=False), max_size=4),
    st.sampled_from(["", "3-17"]),
    st.sampled_from([None, 1, "\r\n"]),
    st.integers(1, 80),
)
def test_events_of_our_server_are_decoded_unchanged(
    message: dict[str, object], id: str, indent: int | str | None, size: int
):
    frame = json.dumps(message, indent=indent, ensure_ascii=False).encode()
    (event,) = parse(streams.event(frame, id), size)

    assert (event.name, event.id) == ("message", id)
    assert json.loads(event.data) == message


# Rules


def test_blank_line_ends_an_event():
    stream = b'event: endpoint\nid: 4\ndata: /messages\n\ndata: {"a": 1}\n\n'

    assert parse(stream) == [
        ServerSentEvent("endpoint", b"/messages", "4"),
        ServerSentEvent("message", b'{"a": 1}', "4"),
    ]


@each_row("end", [b"\n", b"\r", b"\r\n"], ids=["LF", "CR", "CRLF"])
@each_row("size", [0, 1, 2, 3])
def test_all_three_line_ends_are_accepted(end: bytes, size: int):
    stream = end.join([b"id: 1", b"data: a", b"", b": b", b"data: c", b"data: d", b"", b""])

    assert [event.data for event in parse(stream, size)] == [b"a", b"c\nd"]


def test_only_the_newline_right_after_a_carriage_return_belongs_to_it():
    parser = SseParser(LIMIT)
    chunks = [b"data: a\r", b"\n", b"\n", b"data: b\r", b"data: c", b"\n", b"\n"]

    assert [event.data for chunk in chunks for event in parser.feed(chunk)] == [b"a", b"b\nc"]


def test_an_event_that_ends_in_a_carriage_return_does_not_wait_for_a_newline():
    parser = SseParser(LIMIT)

    assert [event.data for event in parser.feed(b"data: a\r\r")] == [b"a"]
    assert parser.feed(b"") == []
    assert parser.feed(b"\n") == []  # of the CRLF that has ended the event
    assert [event.data for event in parser.feed(b"data: b\r\r\n")] == [b"b"]


def test_one_byte_order_mark_at_the_beginning_is_skipped_and_no_other():
    assert data_of(BOM + b"data: a\n\n" + BOM + b"data: b\n\ndata: c\n\n") == [b"a", b"c"]
    assert data_of(BOM + BOM + b"data: a\n\n") == []
    parser = SseParser(LIMIT)
    assert [parser.feed(BOM + b"data: %d\n\n" % number) != [] for number in range(3)] == [
        True,
        False,
        False,
    ]


def test_one_space_after_the_colon_is_not_part_of_the_value():
    assert data_of(b"data:a\n\ndata: a\n\ndata:  a\n\ndata:\ta\n\n") == [b"a", b"a", b" a", b"\ta"]


def test_lines_that_are_comments_or_unknown_change_nothing():
    stream = b": data: no\n:\nDATA: no\n data: no\ndatum\nfoo: bar\ndata: yes\n\n: end\n\n"

    assert parse(stream) == [ServerSentEvent("message", b"yes", "")]


def test_event_without_its_blank_line_is_dropped():
    parser = SseParser(LIMIT)

    assert parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n") != []
    assert parser.last_id == "1"


def test_event_without_data_needs_an_id_or_an_empty_data_line():
    stream = b"id: 7\ndata: \n\nid: 8\n\ndata\n\nevent: x\n\nretry: 5\n\n\n\n"

    assert parse(stream) == [
        ServerSentEvent("message", b"", "7"),
        ServerSentEvent("message", b"", "8"),
        ServerSentEvent("message", b"", "8"),
    ]


def test_a_name_belongs_to_one_event_and_the_last_one_counts():
    stream = b"event: a\nevent: b\ndata: 1\n\ndata: 2\n\nevent: c\n\ndata: 3\n\n"
    stream += b"event: a\nevent:\ndata: 4\n\nevent: a\nevent: message\ndata: 5\n\n"

    assert [event.name for event in parse(stream)] == ["b", *["message"] * 4]


def test_event_id_applies_until_the_next_id_and_an_empty_id_resets_it():
    stream = b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n"

    assert [event.id for event in parse(stream)] == ["1", "1", ""]


@each_row("character", ["\0", "\x01", "\x0b", "\x1f", "\x7f"])
def test_id_that_is_invalid_in_a_header_is_ignored(character: str):
    """R-16: what comes back to the server as `Last-Event-ID` is what may stand in a header."""
    assert parse(f"id: 1\n\nid: 2{character}\ndata: a\n\n".encode())[1].id == "1"
    assert parse(f"id: {character}2\n\n".encode()) == []


@each_row("id", ["1\t2", "a b", "é", "\x85", "=?base64?YQ==?="])
def test_valid_event_id_is_kept_unchanged(id: str):
    assert parse(f"id: {id}\n\n".encode()) == [ServerSentEvent("message", b"", id)]


def test_event_id_that_is_not_utf_8_is_kept_with_replacement_characters():
    assert parse(b"id: \xffa\n\n")[0].id == "\ufffda"


@each_row("said", ["", "-1", "+1", "1.5", "1e3", "0x10", "1 ", " 1", "1_0", "٣", "²"])
def test_retry_is_digits_or_nothing(said: str):
    parser = SseParser(LIMIT)
    parser.feed(f"retry: 250\nretry: {said}\n".encode())

    assert parser.retry == 0.25


@each_row("digits", [8, 400, 100_000])
def test_sse_retry_time_has_a_maximum(digits: int):
    parser = SseParser(LIMIT)
    assert parser.retry is None
    parser.feed(b"retry: " + b"9" * digits + b"\n")

    assert parser.retry == MAX_RETRY


def test_resumed_parser_keeps_id_and_retry():
    parser = SseParser(LIMIT)
    parser.feed(b"retry: 10\nid: 1\ndata: a\n\nid: 2\nevent: x\ndata: cut\ndata: of\r")

    again = parser.resumed()
    assert (again.last_id, again.retry) == ("1", 0.01)
    assert again.feed(b"\n" + BOM + b"data: b\n\n") == []  # a blank line, and no second beginning
    assert again.resumed().feed(BOM + b"data: c\n\n") == [ServerSentEvent("message", b"c", "1")]


# Bounds


@each_row("size", [0, 1, 7, 64])
def test_an_event_of_the_limit_passes_and_one_byte_more_does_not(size: int):
    def feed(stream: bytes) -> list[bytes]:
        parser, step = SseParser(100), size or len(stream)
        chunks = [stream[start : start + step] for start in range(0, len(stream), step)]
        return [event.data for chunk in chunks for event in parser.feed(chunk)]

    whole, halves = b"x" * 100, b"data: " + b"x" * 50 + b"\ndata: " + b"x" * 49
    assert feed(BOM + b"data: " + whole + b"\r\n\r\n") == [whole]
    assert feed(halves + b"\n\n") == [b"x" * 50 + b"\n" + b"x" * 49]
    for stream in (b"data: x" + whole, b"data:x" + whole, halves + b"x"):
        with pytest.raises(MessageTooLarge):
            feed(stream + b"\n\n")


@each_row("field", [b"data: ", b": ", b"event: ", b"id: ", b"retry: ", b"foo", b""])
@each_row("end", [b"", b"\n"], ids=["open", "ended"])
def test_no_line_is_longer_than_the_limit(field: bytes, end: bytes):
    whole = len(b"data: " + b"x" * 100)
    SseParser(100).feed(field + b"x" * (whole - len(field)) + end)
    with pytest.raises(MessageTooLarge):
        SseParser(100).feed(field + b"x" * (whole + 4 - len(field)) + end)


def test_many_short_lines_of_data_are_one_event_and_have_its_limit():
    parser = SseParser(100)
    for _ in range(101):
        parser.feed(b"data:\n")

    with pytest.raises(MessageTooLarge):
        parser.feed(b"data:\n")


def test_unfinished_line_counts_towards_the_limit_with_the_data_before_it():
    parser = SseParser(100)
    parser.feed(b"data: " + b"x" * 60 + b"\n")

    with pytest.raises(MessageTooLarge):
        parser.feed(b"data: " + b"x" * 60)


@each_row(
    "event",
    [
        b"data: 1234567890\n: 1234567890123456\n\n",  # comments do not count as data
        b"\xef\xbb\xbfid: 123456789012345678\n\n",
        b"data: 12345\ndata: 123456789\n\n",  # a byte too many, with the newline between
        b"event: 1234567890\n\n",
    ],
)
def test_whether_an_event_is_over_the_limit_does_not_depend_on_the_chunks(event: bytes):
    def is_over(chunks: list[bytes]) -> bool:
        parser = SseParser(15)
        try:
            for chunk in chunks:
                parser.feed(chunk)
        except MessageTooLarge:
            return True
        return False

    for size in range(1, len(event)):
        chunks = [event[at : at + size] for at in range(0, len(event), size)]
        assert is_over(chunks) == is_over([event])


def test_ended_events_do_not_count_for_the_limit():
    parser = SseParser(100)
    stream = b"data: " + b"x" * 100 + b"\n\n: " + b"c" * 90 + b"\n"

    assert len(parser.feed(stream * 50)) == 50


def test_error_about_an_event_over_the_limit_states_the_limit():
    with pytest.raises(MessageTooLarge, match=r"event of over 2\.0 MiB \(limit 1 MiB\)"):
        SseParser(2**20).feed(b"data: " + b"x" * 2**21)


@pytest.mark.slow("works through much data")
@each_row("line", [b"data: xyz\n", b"data: x"], ids=["lines", "one line"])
def test_an_event_in_tiny_pieces_takes_no_more_memory_than_four_times_its_limit(line: bytes):
    limit = 2**16
    parser = SseParser(limit)
    tracemalloc.start()
    parser.feed(line)
    for _ in range(limit // 4 - 2):
        parser.feed(bytes(bytearray(line if line[-1:] == b"\n" else b"xyz\xff")))
    assert len(parser.feed(b"\n\n")) == 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 4 * limit


@each_row(
    "piece",
    [b"x" * 1024, b"data: " + b"x" * 1017 + b"\n"],
    ids=["an endless line", "endless lines"],
)
def test_the_cost_is_linear_in_the_bytes(piece: bytes):
    """32 MiB in small pieces: some 0.1 s; copying all at each piece would be 500 GB."""
    parser = SseParser(2**26)
    begin = time.process_time()
    for _ in range(2**25 // 1024):
        parser.feed(piece)

    assert time.process_time() - begin < 8
