"""Frames: what is taken is strict JSON within bounds, and means what other readers see in it."""

from __future__ import annotations

import json
from typing import Any

from msgspec import UNSET

from interlock.errors import ParseError
from interlock.protocol import envelope
from tests.fuzz.choices import Choices
from tests.fuzz.frames import frame_of
from tests.fuzz.watch import check_text

TOKENS = [
    *(b'"jsonrpc":"2.0"', b'"id":', b'"method":', b'"params":', b'"result":', b'"error":'),
    *(b'"Method":', b'"\\u0069d":', b"\\ud800", b"\\\\", b'\\"', b"NaN", b"-0", b"1e9", b"1.0"),
    *(b'{"jsonrpc":"2.0","id":1,"result":{}}', b"000000000000000000000", b"\xef\xbb\xbf", b"[[[["),
    *(b"\xed\xa0\x80", b"null", b"true", b"\x0b", b"{}", b"[]", b'"a":'),
]


def target(data: bytes) -> None:
    choices = Choices(data)
    look(data)
    if choices.flag():
        look(frame_of(choices))
    else:
        frames = [frame_of(choices) for _ in range(choices.number(4))]
        look(b"[" + b",".join(frames) + b"]")


def look(data: bytes) -> None:
    envelope.id_of(data)
    split(data)
    try:
        message = envelope.decode(data)
    except ParseError as error:
        check_text(error)
        return
    seen: Any = json.loads(data, parse_constant=refuse, object_pairs_hook=dict)
    assert message.jsonrpc == seen["jsonrpc"] == "2.0"
    for name in ("id", "method"):
        value = getattr(message, name)
        assert (name not in seen) if value is UNSET else same(value, seen[name])
    for name in ("params", "result", "error"):
        value = getattr(message, name)
        assert (name not in seen) if value is UNSET else json.loads(bytes(value)) == seen[name]
    check_bounds(seen, envelope.MAX_DEPTH)
    again(message)


def split(data: bytes) -> None:
    try:
        messages = envelope.split_batch(data)
    except ParseError:
        return
    if data.isascii():  # bad UTF-8 is found when each is decoded
        assert json.loads(b"[" + b",".join(messages) + b"]") == json.loads(data)


def again(message: envelope.Envelope) -> None:
    """Check that our own messages decode to what was encoded."""
    params = b"{}" if message.params is UNSET else bytes(message.params)
    if message.method is UNSET or not params.startswith(b"{"):
        return
    if message.id is UNSET:
        written = envelope.notification(message.method, params)
    elif message.id is None:
        return
    else:
        written = envelope.request(message.id, message.method, params)
    read = envelope.decode(written)
    assert same(read.id, message.id)
    assert read.method == message.method


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} was taken")


def same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def check_bounds(value: Any, depth: int) -> None:
    assert depth >= 0 or not isinstance(value, dict | list)
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            check_bounds(inner, depth - 1)
    elif type(value) is int:
        assert abs(value) < 10**envelope.MAX_DIGITS
