"""Questions of servers: forms, URLs and sampling, put to the person at the terminal."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.cli.questions import TerminalQuestions
from interlock.cli.terminal_prompt import TerminalPrompt
from interlock.config import Config, StdioServer
from interlock.errors import RemoteError
from interlock.models.scripted import ScriptedModel
from interlock.types import CreateMessageParams, SamplingMessage, TextContent

QUESTION = "Answer it?"
CTRL_D = "\x04"
SERVER = """
from interlock import Context, Server

server = Server("desk")


BOOKING = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "guests": {"type": "integer", "minimum": 1, "default": 2},
        "room": {"oneOf": [{"const": "s", "title": "small"}, {"const": "l", "title": "large"}]},
        "lunch": {"type": "boolean", "default": False},
    },
    "required": ["name"],
}


@server.tool
async def book(context: Context) -> str:
    answer = await context.elicit("Book a table\\x1b[2J?", BOOKING)
    return str(answer.content)


@server.tool
async def replace(context: Context) -> str:
    answer = await context.elicit("Replace it?", {"type": "object", "properties": {}})
    return f"{answer.action} {answer.content}"


@server.tool
async def visit(context: Context) -> str:
    return (await context.elicit_url("Log in.", "http://127.0.0.1:9/login")).action


@server.tool
async def where(context: Context) -> str:
    return (await context.roots())[0].uri


@server.tool
async def think(context: Context) -> str:
    return (await context.sample("What is 2 + 2?", max_tokens=10)).text


server.run()
"""


@pytest.fixture
def desk(tmp_path: Path, servers) -> Path:
    script = tmp_path / "desk.py"
    script.write_text(SERVER)

    def configure(**more: Any) -> Path:
        entry = {"command": sys.executable, "args": [str(script)], **more}
        return servers(desk=entry)

    configure()
    return script


@pytest.mark.slow("starts the program on a terminal")
def test_form_is_filled_in_field_by_field_with_defaults_and_checks(terminal, desk):
    call = terminal("call", "desk:book")
    call.expect("server desk asks: Book a table\\x1b[2J?")
    call.expect(QUESTION)
    call.type("y\r")
    call.expect("name:")
    call.type("\r")
    call.expect("a value is required")
    call.type("Ann\r")
    call.expect("guests:")
    call.type("many\r")
    call.expect("not accepted")
    call.type("5\r")
    call.expect("1 small, 2 large")
    call.type("2\r")
    call.expect("lunch:")
    call.type("\r")
    call.expect("Send this?")
    call.type("y\r")
    call.expect("{'name': 'Ann', 'guests': 5, 'room': 'l', 'lunch': False}")

    assert call.leave() == 0


@pytest.mark.slow("starts the program on a terminal")
def test_form_without_fields_is_one_question(terminal, desk):
    call = terminal("call", "desk:replace")
    call.expect("server desk asks: Replace it?")
    call.expect("Do you agree? [y]es, [n]o:")
    call.type("y\r")
    call.expect("accept {}")

    assert call.leave() == 0
    assert "Send this?" not in call.seen


@pytest.mark.slow("starts the program on a terminal")
@pytest.mark.parametrize(("keys", "action"), [("n\r", "decline"), (CTRL_D, "cancel")])
def test_person_can_decline_or_cancel_a_question(terminal, desk, keys: str, action: str):
    call = terminal("call", "desk:visit")
    call.expect("it wants you to open http://127.0.0.1:9/login")
    call.expect("Open it?")
    call.type(keys)
    call.expect(action)

    assert call.leave() == 0


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize(
    ("more", "option", "is_offered"),
    [
        ({}, (), False),
        ({"asks": ["roots"]}, (), False),
        ({"asks": "never"}, ("--root", "."), False),
        ({}, ("--root", "."), True),
        ({"roots": ["."]}, (), True),
        ({"roots": ["${workspaceFolder}"], "asks": ["sampling"]}, (), True),
    ],
)
def test_server_learns_the_working_folder_only_if_the_file_or_the_user_says_so(
    interlock, desk, servers, home: Path, more: Any, option: tuple[str, ...], is_offered: bool
):
    servers(desk={"command": sys.executable, "args": [str(desk)], **more})
    ran = interlock("call", "desk:where", *option)

    assert ran.code == (0 if is_offered else 1)
    assert (ran.out == f"{home.as_uri()}\n") is is_offered


@pytest.mark.slow("starts a program")
def test_server_that_may_not_ask_and_one_without_a_person_are_refused(interlock, desk, servers):
    assert interlock("call", "desk:book").code == 1

    servers(desk={"command": sys.executable, "args": [str(desk)], "asks": "never"})
    assert interlock("call", "desk:where").code == 1


@pytest.mark.slow("starts the program on a terminal")
@pytest.mark.parametrize("answer", ["y", "n"])
def test_model_answers_a_server_only_after_a_yes(
    terminal, desk, servers, tmp_path: Path, answer: str
):
    entry = {"command": sys.executable, "args": [str(desk)], "asks": ["sampling"]}
    servers(desk=entry | {"tools": {"risk": {"read": ["*"]}}})
    script = tmp_path / "script.json"
    think = {"tool_calls": [{"id": "1", "name": "desk__think", "input": {}}]}
    script.write_text(json.dumps([think, {"content": "Four."}, {"content": "Done."}]))
    chat = terminal("chat", "go", "--model", f"scripted:{script}")
    chat.expect("server desk wants scripted")
    chat.expect("What is 2 + 2?")
    chat.expect("Ask the model?")
    chat.type(f"{answer}\r")
    chat.expect("Four." if answer == "y" else "the user refused")

    assert chat.leave() == 0


class Agreeing(TerminalPrompt):
    """A person who says yes to everything, after a moment."""

    is_available = True

    async def line(self, question: str) -> str:
        await asyncio.sleep(0)
        return "y"


async def test_of_twelve_simultaneous_sampling_requests_the_model_answers_ten(tmp_path: Path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"content": "Four."}] * 12))
    model = ScriptedModel.from_file(str(script))
    servers = Config(servers={"desk": StdioServer(command="x", asks=("sampling",))})
    sample = TerminalQuestions(Agreeing(), servers, lambda: model).handlers("desk")["sampling"]
    asked = CreateMessageParams(
        messages=[SamplingMessage(role="user", content=TextContent("2 + 2?"))], max_tokens=5
    )

    answers = await asyncio.gather(*(sample(asked) for _ in range(12)), return_exceptions=True)

    refused = [each for each in answers if isinstance(each, RemoteError)]
    assert len(refused) == 2
    assert refused[0].message == "the model answered this server 10 times (limit 10)"
