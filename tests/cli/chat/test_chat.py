"""`interlock chat` with one prompt: the answer, the messages on stderr, the stored conversation."""

import asyncio
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from interlock.errors import MissingExtra
from interlock.messages import (
    SEARCH_TOOLS,
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolMessage,
    UserMessage,
)
from interlock.store import Conversation, ConversationStore
from interlock.web.chat.attachments import split_files
from tests.support.rows import each_row

BROKEN = {"command": "no-such-program"}


def stored_conversations() -> list[tuple[Conversation, list[Message]]]:
    async def read() -> list[tuple[Conversation, list[Message]]]:
        async with ConversationStore.open() as store:
            return [(each, await store.messages(each.id)) for each in await store.list()]

    return asyncio.run(read())


# The answer


@pytest.mark.slow("starts a program")
def test_the_answer_goes_to_stdout_and_tools_to_stderr(interlock, servers, script):
    servers()
    ran = interlock("chat", "Say x.", "--model", script({"say": {"text": "x"}}, "I *said* x."))

    assert (ran.code, ran.out) == (0, "I *said* x.\n")
    lines = ran.err.splitlines()
    assert lines[0] == '[TOOL] e:say(text="x")'
    assert re.fullmatch(r"\[TOOL\] e:say ok in \d+\.\d+ s: x", lines[1])


@pytest.mark.slow("starts a program")
def test_several_calls_and_failures_are_reported(interlock, servers, script):
    servers()
    calls = {"fail": {"text": "no\x1b[2J"}, "nix": {}, "echo": {"count": "x"}}
    ran = interlock("chat", "go", "--model", script(calls, "Done."))

    assert ran.code == 0
    assert "[TOOL] e:fail failed in" in ran.err
    assert "no\\x1b[2J" in ran.err
    assert "[TOOL] e__nix failed" in ran.err
    assert "[TOOL] e:echo failed" in ran.err


@pytest.mark.slow("starts a program")
def test_text_before_a_call_is_printed_on_its_own_line(interlock, servers, tmp_path: Path):
    servers()
    path = tmp_path / "s.json"
    path.write_text(
        '[{"content": "Wait.", "tool_calls": [{"id": "1", "name": "e__say"}]}, {"content": "Ok."}]'
    )

    assert interlock("chat", "x", "--model", f"scripted:{path}").out == "Wait.\nOk.\n"


def test_a_prompt_can_be_piped_in(interlock, script):
    ran = interlock("chat", "--model", script("Yes."), stdin="Is ü a letter?\n".encode())

    assert (ran.code, ran.out) == (0, "Yes.\n")
    assert stored_conversations()[0][1][0] == UserMessage("Is ü a letter?\n")


def test_text_that_is_piped_in_follows_the_prompt(interlock, script):
    ran = interlock("chat", "Summarise this:", "--model", script("Short."), stdin=b"A long text.\n")

    assert ran.out == "Short.\n"
    assert stored_conversations()[0][1][0] == UserMessage("Summarise this:\n\nA long text.\n")


PNG = b"\x89PNG\r\n\x1a\n\0\0"


def test_attached_files_and_piped_text_are_part_of_the_message(interlock, script, home: Path):
    (home / "cat.png").write_bytes(PNG)
    (home / "notes.txt").write_text("Buy milk.")
    files = ("-a", "cat.png", "-a", "notes.txt")
    ran = interlock("chat", "Compare.", *files, "--model", script("Yes."), stdin=b"Piped.")

    assert ran.out == "Yes.\n"
    message = stored_conversations()[0][1][0]
    assert isinstance(message, UserMessage)
    assert message.attachments == (Attachment("image/png", PNG, "cat.png"),)
    text, files = split_files(message.content)
    assert text == "Compare.\n\nPiped."
    assert [(each["name"], each["bytes"]) for each in files] == [("notes.txt", 9)]
    assert "\nBuy milk.\n" in message.content
    (exported,) = interlock("conversations", "list", "--json").json
    shown = interlock("conversations", "show", exported["id"]).out
    assert "[FILE] cat.png (image/png, 10 bytes)" in shown


def test_a_dash_attaches_the_file_on_stdin(interlock, script):
    interlock("chat", "What is it?", "-a", "-", "--model", script("A cat."), stdin=PNG)

    attached = Attachment("image/png", PNG, "stdin")
    assert stored_conversations()[0][1][0] == UserMessage("What is it?", (attached,))


def test_a_file_that_cannot_be_attached_ends_the_command(interlock, script, home: Path):
    (home / "a.zip").write_bytes(b"PK\3\4\0")
    ran = interlock("chat", "Hi", "-a", "a.zip", "--model", script("Yes."))

    assert ran.code == 1
    assert ran.err.startswith("error: cannot attach a.zip: it is neither text")
    assert "-a - sends a file from stdin" in interlock("chat", "Hi", stdin=PNG).err


def test_open_pipe_without_a_writer_does_not_delay_the_prompt_for_ever(
    interlock, script, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("interlock.cli.chat.chat.SILENCE", 0.01)
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as pipe, os.fdopen(theirs, "wb"):
        ran = interlock("chat", "Hi", "--model", script("Yes."), stdin=pipe)

    assert (ran.code, ran.out) == (0, "Yes.\n")
    assert "nothing came on stdin for 0.01 s, so it is not read" in ran.err


@pytest.mark.slow("starts a program")
def test_json_prints_each_event_on_a_separate_line(interlock, servers, script):
    servers()
    model = script({"say": {"text": "x\x9b"}}, "Done.")
    ran = interlock("chat", "go", "--json", "--model", model)
    events = [json.loads(line) for line in ran.out.splitlines()]

    assert "\x9b" not in ran.out
    assert [each["type"] for each in events] == [
        "tool_start",
        "tool_complete",
        "token",
        "complete",
    ]
    assert (events[0]["tool_name"], events[0]["tool_input"]) == ("e:say", '{"text":"x\x9b"}')
    assert (events[1]["tool_result"], events[1]["is_error"]) == ("x\x9b", False)
    assert events[2]["content"] == events[3]["content"] == "Done."
    assert events[3]["conversation_id"] == stored_conversations()[0][0].id
    assert interlock("chat", "--json", stdin=b"").code == 2


def test_system_message_starts_each_new_conversation(interlock, script):
    interlock("chat", "Hi", "-s", "Be brief.", "--model", script("Yes."))

    assert stored_conversations()[0][1][:2] == [SystemMessage("Be brief."), UserMessage("Hi")]


@pytest.mark.slow("fills a database")
def test_continue_continues_the_latest_conversation(interlock, script):
    none = interlock("chat", "a", "--continue", "--model", script("No."))
    assert (none.code, none.err.count("no conversation found")) == (1, 1)

    for prompt in ("a", "b"):
        interlock("chat", prompt, "--model", script("Yes."))
    interlock("chat", "c", "-c", "--model", script("Still yes."))

    latest, older = stored_conversations()
    assert [each.content for each in latest[1]] == ["b", "Yes.", "c", "Still yes."]
    assert len(older[1]) == 2


@each_row(
    "options",
    [
        ["--continue", "--conversation", "k3f"],
        ["-c", "-s", "x"],
        ["--conversation", "k", "-s", "x"],
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(interlock, options: list[str]):
    assert interlock("chat", "x", *options).code == 2


@each_row(
    ("words", "stdin", "message"),
    [
        ([], b"", "the prompt is empty"),
        ([], b" \n", "the prompt is empty"),
        ([""], b"x", "the prompt is empty"),
        ([], None, "the prompt is empty"),
        ([], b"caf\xe9 noir", "not UTF-8 (byte 3)"),
    ],
)
def test_an_empty_or_undecodable_prompt_is_wrong_usage(interlock, words, stdin, message: str):
    ran = interlock("chat", *words, stdin=stdin)

    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


@each_row(
    ("words", "stdin"),
    [
        (["caf\udce9"], None),
        (["Hi", "-s", "caf\udce9"], None),
        (["Hi", "-a", "caf\udce9.txt"], None),
        ([], b"half \xed\xa0\xbd"),
        ([], "cut by head -c: 😀".encode()[:-1]),
        ([], "cut by tail -c: 😀"[::-1].encode()[1:]),
    ],
)
def test_text_with_invalid_bytes_is_answered_and_can_be_continued(
    interlock, script, home: Path, words: list[str], stdin: bytes | None
):
    (home / "caf\udce9.txt").write_text("tea")
    model = script("one", "two")
    ran = interlock("chat", *words, "--json", "--model", model, stdin=stdin)
    again = interlock("chat", "more", "-c", "--model", model)

    assert (ran.code, again.code) == (0, 0), ran.err + again.err
    done = json.loads(ran.out.splitlines()[-1])
    assert done["content"] == "one"
    exported = interlock("conversations", "export", done["conversation_id"]).out
    assert "\\ufffd" in exported or "\ufffd" in exported


def test_chat_without_servers_prints_only_the_answer(interlock, script):
    assert interlock("chat", "x", "--model", script("Yes.")) == (0, "Yes.\n", "")


def test_chat_with_no_tools_starts_no_server(interlock, servers, script, home: Path):
    servers(other={"command": "sh", "args": ["-c", "touch started"]})
    ran = interlock("chat", "x", "--no-tools", "--model", script({"say": {}}, "Yes."))

    assert "no tool 'e__say'" in ran.err
    assert not (home / "started").exists()


@pytest.mark.slow("starts a program")
def test_a_broken_server_is_reported_and_the_others_are_used(interlock, servers, script):
    servers(broken=BROKEN)
    ran = interlock("chat", "x", "--model", script({"say": {"text": "x"}}, "Yes."))

    assert (ran.code, ran.out) == (0, "Yes.\n")
    assert "warning: server 'broken' failed: cannot start 'no-such-program'" in ran.err
    assert "[TOOL] e:say ok" in ran.err


@pytest.mark.program("mcp-server-time")
def test_embedded_model_answers_a_list_of_places_with_a_real_call_for_each(
    interlock, tmp_path: Path
):
    time = {
        "command": str(Path(sys.executable).with_name("mcp-server-time")),
        "tools": {"risk": {"read": ["*"]}},
    }
    path = tmp_path / "time.json"
    path.write_text(json.dumps({"mcpServers": {"time": time}}))

    ran = interlock(
        *("chat", "what time is it in Tokyo and in New York?"),
        *("--config", path, "--model", "local"),
    )

    assert "I have" not in ran.out
    for place in ("Asia/Tokyo", "America/New_York"):
        assert f"Current time (timezone {place}):\n\n- timezone: {place}\n" in ran.out
    assert ran.err.count(" ok in ") == 2
    assert ran.err.count("the embedded model only picks tools by words") == 1


def test_an_empty_answer_is_reported(interlock, script):
    ran = interlock("chat", "x", "--model", script(""))

    assert (ran.code, ran.out, ran.err) == (0, "", "(the answer is empty)\n")


# Errors


@pytest.mark.slow("loads the vendors' packages")
@each_row(
    ("model", "message"),
    [
        ("nobody:x", "unknown model provider 'nobody'"),
        ("scripted:missing.json", "script missing.json"),
        ("anthropic:x", "ANTHROPIC_API_KEY"),
    ],
)
def test_an_unavailable_model_is_an_error(interlock, servers, model: str, message: str):
    servers()
    ran = interlock("chat", "x", "--model", model)

    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert stored_conversations() == []


@pytest.mark.slow("fills a database")
def test_a_conversation_can_continue_after_the_model_failed(interlock, servers, script):
    servers()
    assert interlock("chat", "x", "--model", script({"say": {"text": "x"}})).code == 1
    (conversation, messages), *_ = stored_conversations()
    ran = interlock("chat", "y", "--conversation", conversation.id, "--model", script("Yes."))

    *_, result, failed = messages
    assert isinstance(result, ToolMessage)
    assert isinstance(failed, AssistantMessage)
    assert failed.unfinished is not None
    assert failed.unfinished.reason == "failed"
    assert failed.unfinished.detail.endswith("has no answer 2")
    assert (ran.code, ran.out) == (0, "Yes.\n")
    assert stored_conversations()[0][1] == [*messages, UserMessage("y"), AssistantMessage("Yes.")]


def test_an_invalid_configuration_is_an_error(interlock, servers, script):
    servers().write_text('{"mcpServers": 1}')
    ran = interlock("chat", "x", "--model", script("Yes."))

    assert (ran.code, ran.out) == (1, "")
    assert "line 1" in ran.err


# The stored conversation


@pytest.mark.slow("starts a program")
def test_the_conversation_is_stored_with_title_and_model(interlock, servers, script):
    servers()
    model = script({"say": {"text": "x"}}, "Said.")
    interlock("chat", "  Say\n x. " + "long " * 50, "--model", model)
    ((conversation, messages),) = stored_conversations()

    assert conversation.title.startswith("Say x. long")
    assert len(conversation.title) == 80
    assert conversation.model == model
    assert [type(each) for each in messages] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
    ]


def test_a_conversation_continues_with_its_own_model(interlock, script, monkeypatch):
    interlock("chat", "a", "--model", script("One."))
    monkeypatch.setenv("INTERLOCK_MODEL", "nobody:x")
    ((conversation, _),) = stored_conversations()
    ran = interlock("chat", "b", "--conversation", conversation.id[:5])

    assert (ran.code, ran.out) == (0, "One.\n")
    assert len(stored_conversations()[0][1]) == 4


def test_a_conversation_can_continue_with_another_model(interlock, script, tmp_path: Path):
    interlock("chat", "a", "--model", script("One."))
    ((conversation, _),) = stored_conversations()
    other = tmp_path / "other.json"
    other.write_text('[{"content": "Two."}]')
    ran = interlock("chat", "b", "--conversation", conversation.id, "--model", f"scripted:{other}")

    assert ran.out == "Two.\n"
    assert stored_conversations()[0][0].model == f"scripted:{other}"


def test_an_unknown_conversation_is_an_error(interlock, script):
    ran = interlock("chat", "x", "--conversation", "nix", "--model", script("Yes."))

    assert (ran.code, ran.out) == (1, "")
    assert "no conversation 'nix'" in ran.err


# Broken databases


def damaged(home: Path) -> str:
    (home / "x.db").write_text("not a database" * 100)
    return str(home / "x.db")


def newer(home: Path) -> str:
    path = home / "x.db"
    with closing(sqlite3.connect(path)) as database, database:
        for table in ("conversations", "messages"):
            database.execute(f"CREATE TABLE {table} (id TEXT)")
        database.execute("CREATE TABLE alembic_version (version_num TEXT PRIMARY KEY)")
        database.execute("INSERT INTO alembic_version VALUES ('9999')")
    database.close()
    return str(path)


def nowhere(home: Path) -> str:
    (home / "file").touch()
    return str(home / "file" / "x.db")


@pytest.mark.parametrize("broken", [damaged, newer, nowhere])
def test_a_broken_database_is_a_warning_or_an_error_for_a_given_conversation(
    interlock, script, home: Path, monkeypatch, broken: Callable[[Path], str]
):
    monkeypatch.setenv("INTERLOCK_DATABASE", broken(home))
    ran = interlock("chat", "x", "--model", script("Yes."))
    asked = interlock("chat", "x", "--conversation", "k3f", "--model", script("Yes."))

    assert (ran.code, ran.out) == (0, "Yes.\n")
    assert ran.err.startswith("warning: conversation not stored: ")
    assert ran.err.count("\n") == 1
    assert (asked.code, asked.out) == (1, "")
    assert asked.err.startswith("error: ")


def test_a_read_only_database_is_a_single_warning(interlock, script, home: Path, monkeypatch):
    monkeypatch.setenv("INTERLOCK_DATABASE", str(home / "x.db"))
    interlock("chat", "x", "--model", script("Yes."))
    ((conversation, messages),) = stored_conversations()
    real = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode, **more: mode != os.W_OK and real(path, mode, **more)
    )
    ran = interlock("chat", "y", "--model", script("Yes."))
    asked = interlock("chat", "y", "--conversation", conversation.id)
    monkeypatch.setattr(os, "access", real)

    assert (ran.code, ran.out) == (0, "Yes.\n")
    assert ran.err.startswith("warning: conversation not stored: ")
    assert ran.err.count("\n") == 1
    assert (asked.code, asked.out) == (1, "")
    assert "error: " in asked.err
    assert stored_conversations() == [(conversation, messages)]


@pytest.mark.slow("starts a program")
def test_a_missing_store_package_is_a_warning(program, without, script):
    ran = program("chat", "x", "--model", script("Yes."), env=without("sqlalchemy"))

    assert ran.communicate() == (
        "Yes.\n",
        f"warning: conversation not stored: {MissingExtra('keeping conversations', 'chat')}\n",
    )
    assert ran.returncode == 0


@pytest.mark.slow("starts a program")
def test_search_for_tools_goes_on_when_a_conversation_is_continued(
    interlock, servers, tmp_path: Path
):
    servers()
    search = {"id": "c1", "name": SEARCH_TOOLS, "input": {"query": "say"}}
    script = tmp_path / "search.json"
    script.write_text(json.dumps([{"tool_calls": [search]}, {"content": "Found."}]))
    ran = interlock("chat", "Hi", "--model", f"scripted:{script}", "--tool-search", "on")
    assert ran.out == "Found.\n"
    assert "interlock:search_tools" in ran.err
    result = stored_conversations()[0][1][2]
    assert isinstance(result, ToolMessage)
    assert "e__say" in result.loads

    call = {"id": "c2", "name": "e__say", "input": {}}
    script.write_text(json.dumps([{"tool_calls": [call]}, {"content": "Said."}]))
    again = interlock("chat", "-c", "Go on", "--model", f"scripted:{script}")
    assert again.out == "Said.\n"
    assert interlock("chat", "Hi", "--tool-search", "maybe").code == 2
