"""One connection: bytes in any pieces make the same frames, and each request ends at most once."""

from __future__ import annotations

import json
from collections.abc import Iterator

from interlock.errors import InterlockError, MessageTooLarge
from interlock.protocol import Answer, Failure, Protocol, Request, RequestOptions
from interlock.transports.lines import LineSplitter
from tests.fuzz.choices import Choices
from tests.fuzz.frames import frame_of

TOKENS = [
    *(b'{"jsonrpc":"2.0",', b'"id":1,', b'"id":2}', b'"result":{}', b'"error":{"code":1,', b"\n"),
    *(b'"message":"x"}', b'"method":"ping"', b'"method":"initialize"', b'"params":{', b"\r\n"),
    *(b'"method":"notifications/progress"', b'"method":"notifications/cancelled"', b'"id":"a"'),
    *(b'"progressToken":3', b'"progress":1', b'"requestId":7', b'"requestId":"a"', b"[{", b"}]"),
]
LONGEST = 2000  # bytes of a line


def target(data: bytes) -> None:
    choices = Choices(data)
    protocol = Protocol(batches=choices.flag(), answers_garbage=choices.flag())
    asked = {
        protocol.request(
            choices.one_of(["tools/call", "initialize", "ping"]),
            now=0.0,
            options=RequestOptions(
                choices.one_of([None, 0.5, 3.0]), progress=print if choices.flag() else None
            ),
        )
        for _ in range(4)
    }
    only = choices.one_of([None, None, 1, 2, 99])
    pieces, as_it_is = choices.bytes(20), choices.flag()
    text = choices.rest() if as_it_is else b"\n".join(written(choices))
    frames = lines(Choices(pieces).pieces(text))
    assert frames == lines([text])
    ended: list[object] = []
    running: list[object] = []
    for now, frame in enumerate(frames or []):
        for event in protocol.receive(frame, now=float(now), request=only):
            if isinstance(event, Answer | Failure):
                assert only is None or event.id == only
                ended.append(event.id)
            if isinstance(event, Failure):
                assert isinstance(event.error, InterlockError)
            if isinstance(event, Request):
                running.append(event.id)
                if choices_say_reply(event):
                    protocol.reply(event.id, b"{}")
        ended += [failure.id for failure in protocol.expire(now=float(now))]
    assert protocol.pending == len(asked) - len(ended)
    for sent in protocol.frames_to_send():
        json.loads(sent)
    ended += [failure.id for failure in protocol.close()]
    assert sorted(ended) == sorted(asked)


def written(choices: Choices) -> Iterator[bytes]:
    """Yield frames, and batches of them."""
    while choices:
        frames = [frame_of(choices) for _ in range(1 + choices.number(3))]
        if choices.number(4):
            yield from frames
        else:
            yield b"[" + b",".join(frames) + b"]"


def choices_say_reply(event: Request) -> bool:
    return len(event.method) % 2 == 0


def lines(pieces: list[bytes]) -> list[bytes] | None:
    """Split into lines; None when one of them is too long."""
    splitter = LineSplitter(LONGEST)
    found = []
    try:
        for piece in pieces:
            found += splitter.feed(piece)
    except MessageTooLarge:
        return None
    return found
