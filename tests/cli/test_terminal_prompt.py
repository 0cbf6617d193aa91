"""Questions to the person at the terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interlock.cli.terminal_prompt import NoAnswer, TerminalPrompt
from tests.cli.conftest import ECHO
from tests.support.rows import each_row


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


@each_row(
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


ASKS = {"command": sys.executable, "args": ECHO}  # none of its tools is stated to only read
QUESTION = "Run it?"
PROMPT = "\x1b[?2004h"  # the line editor enables bracketed paste
CTRL_C, CTRL_D = "\x03", "\x04"


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize("options", [[], ["--yes"]])
def test_without_a_terminal_a_call_that_may_change_something_runs_only_with_yes(
    interlock, servers, script, options: list[str]
):
    servers(e=ASKS)
    ran = interlock("chat", "go", *options, "--model", script({"say": {"text": "x"}}, "Done."))

    assert (ran.code, ran.out) == (0, "Done.\n")
    if options:
        assert "e:say ok" in ran.err
    else:
        assert "e:say was not run: it may change something" in ran.err
        assert "--yes" in ran.err


@pytest.mark.slow("starts a program")
def test_list_of_another_program_lets_a_tool_run_unasked_with_a_warning(interlock, servers, script):
    servers(e={**ASKS, "autoApprove": ["say"], "alwaysAllow": ["stop"], "disabledTools": []})
    ran = interlock("chat", "go", "--model", script({"say": {"text": "x"}, "echo": {}}, "Done."))

    assert "e:say ok" in ran.err
    assert "e:echo was not run" in ran.err
    warnings = [line for line in ran.err.splitlines() if line.startswith("warning")]
    assert warnings == [
        "warning: server 'e': autoApprove or alwaysAllow lets say run unasked, but it may change "
        "something; remove the name to be asked"
    ]


@pytest.mark.slow("fills a database")
def test_tool_of_a_gateway_with_policy_is_denied_to_the_chat_as_well(
    interlock, servers, script, home: Path
):
    path = servers(e=ASKS)
    path.write_text(path.read_text()[:-1] + ', "gateway": {"policy": {"rules": []}}}')
    ran = interlock("chat", "go", "--yes", "--model", script({"say": {}}, "Done."))

    assert "e:say is denied (no_rule)" in ran.err


@pytest.mark.slow("starts the program on a terminal")
def test_person_sees_all_arguments_and_decides_about_each_call(terminal, servers, script):
    servers(e=ASKS)
    both = {"say": {"text": "third"}, "echo": {"text": "fourth"}}
    calls = [{"say": {"text": "first\x1b[2J"}}, {"say": {"text": "second"}}, both]
    chat = terminal("chat", "go", "--model", script(*calls, "Done."))
    chat.expect("e:say may change something")
    chat.expect("first\\u001b[2J")
    chat.expect(QUESTION)
    chat.type("maybe\r")
    chat.expect(QUESTION)
    chat.type("n\r")
    chat.expect("e:say was not run: the user refused this call")
    # The last two are made at once, and asked about one after the other.
    for address, text in (("e:say", "second"), ("e:say", "third"), ("e:echo", "fourth")):
        chat.expect(f"{address} may change something")
        chat.expect(text)
        chat.expect(QUESTION)
        chat.type("y\r")
    chat.expect("Done.")

    assert chat.leave() == 0


@pytest.mark.slow("starts the program on a terminal")
def test_always_allows_the_tool_until_the_next_conversation(terminal, servers, script):
    servers(e=ASKS)
    two = {"say": {"text": "x"}}
    chat = terminal("chat", "--model", script(two, two, "One.", two, "Two.", two, "Three."))
    chat.expect(PROMPT)
    chat.type("go\r")
    chat.expect(QUESTION)
    chat.type("always\r")
    chat.expect("One.")
    chat.type("again\r")
    chat.expect("Two.")
    chat.type("/new\r")
    chat.expect("new conversation")
    chat.type("again\r")
    chat.expect(QUESTION)
    chat.type(CTRL_C)
    chat.expect("stopped")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0
