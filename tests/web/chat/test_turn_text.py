"""Pieces of a streamed text become events: at once, or joined."""

from __future__ import annotations

import asyncio

import pytest

from interlock.web.chat import turn_text
from interlock.web.chat.turn_text import TurnText


async def test_first_piece_is_emitted_at_once_and_others_wait_to_be_joined() -> None:
    emitted: list[tuple[str, str]] = []
    text = TurnText(lambda kind, piece: emitted.append((kind, piece)))
    for letter in "abcd":
        text.add("token", letter)

    assert emitted == [("token", "a")]
    text.flush()
    assert emitted == [("token", "a"), ("token", "bcd")]


async def test_reasoning_and_answer_are_not_joined_with_each_other() -> None:
    emitted: list[tuple[str, str]] = []
    text = TurnText(lambda kind, piece: emitted.append((kind, piece)))
    for kind, piece in (("reasoning", "a"), ("reasoning", "b"), ("token", "c"), ("token", "d")):
        text.add(kind, piece)
    text.flush()

    assert emitted == [("reasoning", "a"), ("reasoning", "b"), ("token", "cd")]


async def test_text_that_waits_is_emitted_by_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_text, "JOIN_SECONDS", 0.001)
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    call_later, timers = loop.call_later, []
    monkeypatch.setattr(loop, "call_later", lambda *args: timers.append(args) or call_later(*args))
    emitted: list[str] = []

    def emit(_: str, piece: str) -> None:
        emitted.append(piece)
        if len(emitted) == 2:
            done.set()

    text = TurnText(emit)
    for _ in range(1_000):
        text.add("token", "x")
    await done.wait()

    assert (len(timers), "".join(emitted)) == (1, "x" * 1_000)
