"""Questions to the person at the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from interlock.cli.terminal_prompt import NoAnswer, TerminalPrompt


class Typed(TerminalPrompt):
    """Answers with lines that were typed before."""

    def __init__(self, *lines: str) -> None:
        super().__init__()
        self._lines = [*lines]
        self.asked = 0

    async def line(self, question: str) -> str:
        self.asked += 1
        if not self._lines:
            raise NoAnswer
        return self._lines.pop(0)


@pytest.mark.parametrize(
    ("lines", "answer", "asked"),
    [
        (["yes"], "yes", 1),
        (["Y"], "yes", 1),
        (["n"], "no", 1),
        (["", "maybe", "ye", "a"], "always", 4),
    ],
)
async def test_a_question_is_repeated_until_the_answer_is_a_choice(
    lines: list[str], answer: str, asked: int
):
    prompt = Typed(*lines)

    assert await prompt.choice("run it?", "yes", "no", "always") == answer
    assert prompt.asked == asked


async def test_leaving_a_question_raises_and_chooses_nothing():
    with pytest.raises(NoAnswer):
        await Typed("perhaps").choice("run it?", "yes", "no")


async def test_questions_are_asked_one_at_a_time_while_nothing_else_is_shown():
    shown: list[str] = []

    @contextmanager
    def held() -> Iterator[None]:
        shown.append("held")
        yield
        shown.append("free")

    prompt = TerminalPrompt(held)

    async def ask() -> None:
        async with prompt.turn():
            await asyncio.sleep(0)

    await asyncio.gather(ask(), ask())

    assert shown == ["held", "free", "held", "free"]
