"""Server-sent events: any pieces of a stream make the events that the standard says."""

from __future__ import annotations

import re

from interlock.errors import MessageTooLarge
from interlock.protocol.event_stream import MAX_RETRY, SseParser
from tests.fuzz.choices import Choices

TOKENS = [
    *(b"data:", b"data: ", b"event: message\n", b"id: ", b"id\n", b"retry: 10\n", b": x\n"),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"\x00", b"\xe2\x80\xa8"),
    *(b"\xc2\x85", b"\x0b", b"\x1c", b"data\n", b"event\n", b"\xff", b"0123456789"),
]
Events = list[tuple[str, bytes, str]]


def target(data: bytes) -> None:
    choices = Choices(data)
    cuts, limit, stream = choices.bytes(30), choices.one_of([10**6, 10**6, 20]), choices.rest()
    whole = parse([stream], limit)
    assert parse(Choices(cuts).pieces(stream), limit) == whole
    assert parse([stream[at : at + 1] for at in range(len(stream))], limit) == whole
    if limit > len(stream):
        assert whole == as_the_standard_says(stream)


def parse(pieces: list[bytes], limit: int) -> tuple[Events, float | None, str] | None:
    parser = SseParser(limit)
    events: Events = []
    try:
        for piece in pieces:
            events += [(each.name, each.data, each.id) for each in parser.feed(piece)]
    except MessageTooLarge:
        return None
    assert all(len(event[1]) <= limit for event in events)
    return events, parser.retry, parser.last_id


def as_the_standard_says(stream: bytes) -> tuple[Events, float | None, str]:
    """Read a stream line by line, as the HTML standard describes it, with our few bounds."""
    events: Events = []
    retry: float | None = None
    last_id = ""
    name, values, id = "", [], None
    *lines, _ = re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        if not line:
            last_id = last_id if id is None else id
            if values or id is not None:
                events.append((name or "message", b"\n".join(values), last_id))
            name, values, id = "", [], None
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            values.append(value)
        elif field == b"event":
            name = value.decode(errors="replace")
        elif field == b"id" and not any((char < 32 and char != 9) or char == 127 for char in value):
            id = value.decode(errors="replace")
        elif field == b"retry" and re.fullmatch(rb"[0-9]+", value):
            retry = min(int(value) / 1000, MAX_RETRY)
    return events, retry, last_id
