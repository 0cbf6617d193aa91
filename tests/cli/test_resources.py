"""`interlock resources`, `read`, `prompts` and `prompt`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from interlock.messages import UserMessage
from tests.cli.test_chat import stored_conversations

PROMPT = "\x1b[?2004h"  # the line editor enables bracketed paste
LIBRARY = '''
from interlock import Server

server = Server("library")


@server.resource("book://moby", mime_type="text/plain", title="Moby Dick")
def moby() -> str:
    return "Call me Ishmael.\\x1b[2J"


@server.resource("cover://moby", mime_type="image/png")
def cover() -> bytes:
    return b"\\x89PNG\\x00\\xff"


@server.resource("page://{number}")
def page(number: int) -> str:
    return f"page {number}"


@server.prompt
def review(book: str, tone: str = "kind") -> str:
    """Review a book."""
    return f"Review {book} in a {tone} tone."


server.run()
'''


@pytest.fixture
def library(tmp_path: Path, servers) -> None:
    script = tmp_path / "library.py"
    script.write_text(LIBRARY)
    servers(library={"command": sys.executable, "args": [str(script)]})


def test_resources_are_listed_by_address_with_their_templates(interlock, library):
    ran = interlock("resources", "library")

    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.out.splitlines()] == [
        "library:book://moby",
        "library:cover://moby",
        "library:page://{number}",
    ]
    assert interlock("resources", "--json").json[0]["title"] == "Moby Dick"


@pytest.mark.parametrize("address", ["library:book://moby", "book://moby"])
def test_resource_is_read_by_address_or_by_a_uri_that_one_server_lists(
    interlock, library, address: str
):
    assert interlock("read", address).out == "Call me Ishmael.\x1b[2J\n"


def test_resource_of_a_template_is_read_by_its_address(interlock, library):
    assert interlock("read", "library:page://7").out == "page 7\n"


@pytest.mark.slow("starts a program")
def test_bytes_of_a_resource_are_written_to_a_pipe_unchanged(program, library):
    read = program("read", "cover://moby", text=False)

    assert read.communicate(timeout=20)[0] == b"\x89PNG\x00\xff"


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("book://unknown", "no server lists 'book://unknown'; write SERVER:URI"),
        ("library:nix://x", "no resource 'nix://x'"),
    ],
)
def test_resource_that_does_not_exist_is_an_error(interlock, library, address: str, error: str):
    ran = interlock("read", address)

    assert ran.code == 1
    assert error in ran.err


def test_prompts_are_listed_with_their_arguments(interlock, library):
    assert "library:review  book=… [tone=…]  Review a book." in interlock("prompts").out


def test_prompt_prints_its_messages(interlock, library):
    ran = interlock("prompt", "library:review", "book=Moby Dick")

    assert (ran.code, ran.out) == (0, "Review Moby Dick in a kind tone.\n")


@pytest.mark.parametrize(
    ("words", "code"), [(["library:review"], 1), (["review"], 2), (["library:review", "x"], 2)]
)
def test_prompt_without_its_arguments_is_an_error(interlock, library, words: list[str], code: int):
    ran = interlock("prompt", *words)

    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")


@pytest.mark.slow("starts the program on a terminal")
def test_conversation_can_use_a_resource_and_a_prompt(terminal, library, script, interlock):
    chat = terminal("chat", "--model", script("A whale.", "Good."))
    chat.expect(PROMPT)
    chat.type("/read library:book://moby What is it about?\r")
    chat.expect("A whale.")
    chat.expect(PROMPT)
    chat.type("/prompt library:review 'book=Moby Dick'\r")
    chat.expect("Good.")
    chat.expect(PROMPT)
    chat.type("/prompt review\r")
    chat.expect("write /prompt SERVER:NAME")
    chat.expect(PROMPT)
    chat.type("\x04")

    assert chat.leave() == 0
    ((_, messages),) = stored_conversations()
    assert [each.content for each in messages if isinstance(each, UserMessage)] == [
        "What is it about?\n\nResource library:book://moby:\nCall me Ishmael.\x1b[2J",
        "Review Moby Dick in a kind tone.",
    ]
