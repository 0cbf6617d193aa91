"""docs/chat.md shows sessions that happen like this: each one is repeated here."""

import json
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.cli.terminal_prompt import QUESTION
from tests.cli.conftest import Ran

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "chat.md").read_text()
SHOWN = dict(re.findall(r"<!-- session: (\w+) -->\n```text\n(.*?)```", PAGE, re.DOTALL))
TALKS = dict(re.findall(r"<!-- conversation: (\w+) -->\n```text\n(.*?)```", PAGE, re.DOTALL))
SEARCH = {"tool_calls": [{"id": "1", "name": "notes__search", "input": {"query": "short"}}]}
WRITE, SHORTEN = (
    {"tool_calls": [{"id": "1", "name": "notes__write", "input": {"name": name, "text": text}}]}
    for name, text in (("list", "milk"), ("welcome", "Notes are short."))
)
QUESTIONS = (QUESTION.strip(), "Do you agree?")
REFUSED = "I cannot write notes here. Run the command on a terminal, or with --yes."
# What the model answers in the commands of a session; each command starts with the first one.
ANSWERS: dict[str, list[list[Any]]] = {
    "ask": [[SEARCH, "You have one note, welcome."]],
    "refused": [[WRITE, REFUSED], [WRITE, "Noted."]],
    "files": [["Milk is missing."]],
    "continue": [["Hello Ada."], ["Ada."]],
    "settings": [[]] * 4,
}
TALK: dict[str, list[Any]] = {
    "talk": [WRITE, "Noted.", SHORTEN, "It is shorter now.", "It is short. It is a note."],
    "embedded": [],  # the model is a real one
}


@pytest.fixture
def play(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[Any]], None]:
    """Make the files and the answers of the model those of the page."""
    (home / "fridge.txt").write_text("milk\n")
    (home / "list.txt").write_text("bread\n")

    def play(answers: list[Any]) -> None:
        replies = [{"content": each} if isinstance(each, str) else each for each in answers]
        (home / "script.json").write_text(json.dumps(replies))
        monkeypatch.setenv("INTERLOCK_MODEL", f"scripted:{home / 'script.json'}")

    return play


@pytest.fixture
def notes(home: Path) -> Callable[[], None]:
    """Configure the notes server."""

    def configure() -> None:
        path = home / "config" / "interlock" / "mcp.json"
        path.parent.mkdir(parents=True)
        server = {
            "command": sys.executable,
            "args": [str(ROOT / "examples" / "notes_server.py")],
            "tools": {"risk": {"read": ["search", "count_words"]}},
        }
        path.write_text(json.dumps({"mcpServers": {"notes": server}}))

    return configure


def said(ran: Ran) -> list[str]:
    """Return the lines of stderr and then those of stdout, as the page shows them."""
    lines = ran.err.splitlines()
    lines = [re.sub(r"in \d+\.\d+ s: error.*", "in 0.00 s: error", each) for each in lines]
    lines = [re.sub(r"in \d+\.\d+ s", "in 0.00 s", each) for each in lines]
    hidden = ("file: ", "INTERLOCK_MODEL is stronger")
    return [each for each in lines if not each.startswith(hidden)] + ran.out.splitlines()


@pytest.mark.slow("starts a server for each command")
@pytest.mark.parametrize("name", SHOWN)
def test_a_session_of_the_page_happens_as_shown(
    name: str, interlock: Callable[..., Ran], play, notes: Callable[[], None], home: Path
):
    if "notes:" in SHOWN[name]:
        notes()
    commands = re.split(r"^\$ ", SHOWN[name], flags=re.MULTILINE)[1:]
    for block, answers in zip(commands, ANSWERS[name], strict=True):
        command, *expected = block.splitlines()
        words = shlex.split(command)
        stdin = b""
        if words[0] == "cat":
            stdin, words = (home / words[1]).read_bytes(), words[3:]
        play(answers)

        assert said(interlock(*words[1:], stdin=stdin)) == expected


@pytest.mark.slow("starts the program on a terminal")
@pytest.mark.parametrize("name", TALKS)
def test_a_conversation_of_the_page_happens_as_shown(
    name: str, terminal, play, notes: Callable[[], None]
):
    notes()
    play(TALK[name])
    command, *lines = TALKS[name].splitlines()
    chat = terminal(*shlex.split(command)[2:])
    for line in lines:
        if line.startswith("> "):
            chat.expect("\x1b[?2004h")  # the line editor is ready
            chat.type(line.removeprefix("> ") + "\r")
        elif line.startswith(QUESTIONS):
            question, _, answer = line.rpartition(" ")
            chat.expect(question)
            chat.type(f"{answer}\r")
        else:
            chat.expect(line)

    assert chat.leave() == 0


def test_every_session_of_the_page_is_repeated():
    assert (set(SHOWN), set(TALKS)) == (set(ANSWERS), set(TALK))
