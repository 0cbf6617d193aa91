"""`interlock resources` and `read`, and what a conversation uses of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.messages import UserMessage
from tests.cli.chat.test_chat import stored_conversations

PROMPT = "\x1b[?2004h"  # the line editor enables bracketed paste


@pytest.mark.slow("starts a program")
def test_resources_are_listed_by_address_with_their_templates(interlock, library):
    ran = interlock("resources", "library")

    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[0] for line in ran.out.splitlines()] == [
        "library:book://moby",
        "library:cover://moby",
        "library:page://{number}",
    ]
    assert interlock("resources", "--json").json[0]["title"] == "Moby Dick"


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize("address", ["library:book://moby", "book://moby"])
def test_resource_is_read_by_address_or_by_a_uri_that_one_server_lists(
    interlock, library, address: str
):
    assert interlock("read", address).out == "Call me Ishmael.\x1b[2J\n"


@pytest.mark.slow("starts a program")
def test_resource_of_a_template_is_read_by_its_address(interlock, library):
    assert interlock("read", "library:page://7").out == "page 7\n"


@pytest.mark.slow("starts a program")
def test_bytes_of_a_resource_are_written_to_a_pipe_unchanged(program, library):
    read = program("read", "cover://moby", text=False)

    assert read.communicate()[0] == b"\x89PNG\x00\xff"


@pytest.mark.slow("starts a program")
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


@pytest.mark.slow("starts the program on a terminal")
def test_conversation_uses_and_completes_resources_and_prompts(
    terminal, library, script, home: Path
):
    settings = home / "config" / "interlock" / "settings.json"
    settings.write_text('{"aliases": {"quickest": "local"}}')
    chat = terminal("chat", "--model", script("A whale.", "Good.", "A fine book."))
    chat.expect(PROMPT)
    chat.type("/model qui\t")
    chat.expect("ckest")
    chat.type("\x15/read library:boo\t")
    chat.expect("k://moby")
    chat.type(" What is it about?\r")
    chat.expect("A whale.")
    chat.expect(PROMPT)
    chat.type("/prompt library:review 'book=Moby Dick'\r")
    chat.expect("Good.")
    chat.expect(PROMPT)
    chat.type("/libr\t")
    chat.expect("ary:review")
    chat.type(" bo\t")
    chat.expect("ok=")
    chat.type("Moby to\t")
    chat.expect("ne=")
    chat.type("dry\r")
    chat.expect("Review Moby in a dry tone.")
    chat.expect("A fine book.")
    for line, answer in {
        "/prompt": "write /prompt SERVER:NAME",
        "/prompt review": "write /prompt SERVER:NAME",
        "/prompt 'open": "cannot read the line: No closing quotation",
        "/nobody:x": "no server 'nobody'; the servers are e, library",
        "/read e:book://moby": "error: server 'e' has no resources",
        "/e:review": "error: server 'e' has no prompts",
    }.items():
        chat.expect(PROMPT)
        chat.type(f"{line}\r")
        chat.expect(answer)
    chat.expect(PROMPT)
    chat.type("/quit\r")

    assert chat.leave() == 0
    assert chat.seen.count("cannot read") == 1
    ((_, messages),) = stored_conversations()
    assert [each.content for each in messages if isinstance(each, UserMessage)] == [
        "What is it about?\n\nResource library:book://moby:\nCall me Ishmael.\x1b[2J",
        "Review Moby Dick in a kind tone.",
        "Review Moby in a dry tone.",
    ]
