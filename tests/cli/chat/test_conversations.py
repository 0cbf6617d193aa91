"""`interlock conversations`: list, show, delete and export."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from interlock.cli.chat import conversations as module
from interlock.errors import MissingExtra
from interlock.messages import AssistantMessage, ToolCall, ToolMessage, Usage, UserMessage
from interlock.store import ConversationStore
from tests.support.rows import each_row

CALL = ToolCall("c1", "e__say", {"text": "x"})
MESSAGES = (
    UserMessage("Say x."),
    AssistantMessage("I will.", (CALL,)),
    ToolMessage("c1", "x", "e__say"),
    AssistantMessage("Said ``` it."),
)


def with_store(work: Callable[[ConversationStore], Awaitable[object]]) -> object:
    async def run() -> object:
        async with ConversationStore.open() as store:
            return await work(store)

    return asyncio.run(run())


@pytest.fixture
def id() -> str:
    async def fill(store: ConversationStore) -> str:
        conversation = await store.create("Say x.", "scripted:x")
        await store.append(conversation.id, *MESSAGES)
        return conversation.id

    found = with_store(fill)
    assert isinstance(found, str)
    return found


def test_list_prints_one_line_per_conversation(interlock, id: str):
    line = interlock("conversations", "list").out
    (one,) = interlock("conversations", "list", "--json").json

    assert line.startswith(id)
    assert "4 messages  scripted:x  Say x." in line
    assert (one["id"], one["message_count"]) == (id, 4)


def test_list_without_conversations_prints_how_to_start_one(interlock):
    ran = interlock("conversations", "list")

    assert (ran.code, ran.out) == (0, "")
    assert "start one with `interlock chat`" in ran.err
    assert interlock("conversations", "list", "--json").json == []


def test_show_marks_calls_and_tools(interlock, id: str):
    assert interlock("conversations", "show", id[:6]).out.splitlines() == [
        "[USER] Say x.",
        "[ASSISTANT] I will.",
        '[CALL] e__say {"text":"x"}',
        "[TOOL] e__say: x",
        "[ASSISTANT] Said ``` it.",
    ]


def test_show_numbers_the_calls_of_one_tool_in_one_answer(interlock):
    async def fill(store: ConversationStore) -> str:
        conversation = await store.create()
        calls = (ToolCall("a", "e__say", {"n": 1}), ToolCall("b", "e__say", {"n": 2}))
        results = (ToolMessage("a", "one", "e__say"), ToolMessage("b", "two", "e__say"))
        await store.append(conversation.id, AssistantMessage("", calls), *results)
        return conversation.id

    assert interlock("conversations", "show", with_store(fill)).out.splitlines() == [
        '[CALL] e__say {"n":1}',
        '[CALL] e__say#2 {"n":2}',
        "[TOOL] e__say: one",
        "[TOOL] e__say#2: two",
    ]


def test_show_ends_with_the_tokens_and_costs_of_each_model(
    interlock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "settings.json"
    price = {"input": 2, "output": 10, "cached": 0.5}
    path.write_text(json.dumps({"models": {"openai:a": {"price": price}}}))
    monkeypatch.setattr("interlock.config.settings.default_path", lambda: path)

    async def fill(store: ConversationStore) -> str:
        conversation = await store.create("Hi.", "openai:a")
        answers = [AssistantMessage("A.", usage=Usage(600_000, 50_000, 200_000))] * 2
        await store.append(conversation.id, UserMessage("Hi."), *answers, model="openai:a")
        other = AssistantMessage("B.", usage=Usage(5, 1))
        await store.append(conversation.id, other, model="ollama:b")
        return conversation.id

    id = with_store(fill)

    assert interlock("conversations", "show", id).err.splitlines() == [
        "openai:a: tokens: 1,200,000 in (400,000 cached), 100,000 out; cost: 2.8000",
        "ollama:b: tokens: 5 in, 1 out",
    ]
    shown = interlock("conversations", "show", id, "--json").json
    assert [(each["model"], each["cost"]) for each in shown["usage"]] == [
        ("openai:a", 2.8),
        ("ollama:b", None),
    ]
    assert shown["messages"][1]["usage"]["cached_tokens"] == 200_000


def test_show_marks_a_failed_call(interlock):
    async def fill(store: ConversationStore) -> str:
        conversation = await store.create()
        failed = ToolMessage("c1", "no", "e__say", is_error=True)
        await store.append(conversation.id, AssistantMessage("", (CALL,)), failed)
        return conversation.id

    assert "[TOOL] e__say failed: no\n" in interlock("conversations", "show", with_store(fill)).out


def test_export_as_json_has_all_messages_and_calls(interlock, id: str):
    exported = interlock("conversations", "export", id).json

    assert exported["title"] == "Say x."
    assert [message["role"] for message in exported["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert exported["messages"][1]["tool_calls"][0]["input"] == {"text": "x"}


def test_export_as_markdown_has_titles_and_code_blocks(interlock, id: str):
    text = interlock("conversations", "export", id, "--format", "markdown").out

    assert text.startswith("# Say x.\n")
    assert 'Calls `e__say`:\n\n```json\n{"text":"x"}\n```' in text
    assert "## tool `e__say`\n\n```\nx\n```" in text


def test_delete_with_yes_deletes_without_asking(interlock, id: str):
    assert interlock("conversations", "delete", id, "--yes").code == 0
    assert interlock("conversations", "list").out == ""


def test_delete_asks_on_a_terminal(interlock, id: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "is_terminal", lambda _: True)

    assert interlock("conversations", "delete", id, stdin=b"n\n").code == 130
    assert id in interlock("conversations", "list").out
    assert interlock("conversations", "delete", id, stdin=b"y\n").code == 0
    assert interlock("conversations", "list").out == ""


def test_delete_without_a_terminal_needs_yes(interlock, id: str):
    assert interlock("conversations", "delete", id).code == 2
    assert id in interlock("conversations", "list").out


@each_row("command", ["show", "delete", "export"])
def test_an_unknown_id_is_an_error(interlock, command: str):
    ran = interlock("conversations", command, "nix")

    assert (ran.code, ran.out) == (1, "")
    assert "no conversation 'nix'" in ran.err


def test_a_damaged_database_is_a_one_line_error(interlock, home: Path, monkeypatch):
    (home / "file.db").write_text("not a database" * 100)
    monkeypatch.setenv("INTERLOCK_DATABASE", str(home / "file.db"))
    ran = interlock("conversations", "list")

    assert ran.code == 1
    assert str(home / "file.db") in ran.err
    assert ran.err.count("\n") == 1


def test_every_command_refuses_a_database_of_an_older_checkout_in_one_line(
    interlock, home: Path, servers, script, monkeypatch
):
    place = home / "old.db"
    monkeypatch.setenv("INTERLOCK_DATABASE", str(place))
    assert interlock("conversations", "list").code == 0
    with closing(sqlite3.connect(place)) as database:
        database.execute("UPDATE alembic_version SET version_num = '0019'")
        database.execute("DROP TABLE schema_compatibility")
        database.commit()
    before = place.read_bytes()
    config = ("--config", servers())
    refusal = (
        f"{place} was made by a checkout of interlock before its first release: move it away; a new"
        " one is created"
    )

    for command in (
        ("conversations", "list"),
        ("audit", "list"),
        ("audit", "verify"),
        ("keys", "list"),
        ("keys", "create", "x"),
        ("chat", "x", "--continue", "--model", script("Yes.")),
        ("serve", "--stdio", *config),
        ("serve", "--check", *config),
        ("doctor",),
    ):
        ran = interlock(*command)
        assert ran.code == 1, command
        # `doctor` also reports the processes that other programs of this user have left behind.
        lines = [line for line in ran.err.splitlines() if str(place) in line]
        assert lines in ([f"error: {refusal}"], [f"warning: {refusal}"]), (command, ran.err)
    assert place.read_bytes() == before


@pytest.mark.slow("starts a program")
def test_a_missing_package_is_an_error_with_the_extra_to_install(program, without):
    ran = program("conversations", "list", env=without("sqlalchemy"))

    expected = MissingExtra("keeping conversations", "chat")
    assert ran.communicate()[1] == f"error: {expected}\n"


def test_exported_json_escapes_control_characters(interlock, home: Path):
    async def fill(store: ConversationStore) -> str:
        conversation = await store.create("\x1b[2J")
        await store.append(conversation.id, UserMessage("\u202e\x9b"))
        return conversation.id

    out = interlock("conversations", "export", with_store(fill)).out

    assert "\u202e" not in out
    assert json.loads(out)["messages"][0]["content"] == "\u202e\x9b"


def test_search_lists_the_conversations_that_contain_a_text(interlock, id: str):
    assert interlock("conversations", "search", "i WILL").out.startswith(id)
    assert interlock("conversations", "search", "nothing like it", "--json").json == []


def test_rename_changes_the_title(interlock, id: str):
    interlock("conversations", "rename", id[:6], "New title")

    assert interlock("conversations", "show", id, "--json").json["title"] == "New title"


def test_fork_prints_the_id_of_a_copy(interlock, id: str):
    copy = interlock("conversations", "fork", id, "--messages", "1").out.strip()

    assert copy != id
    messages = interlock("conversations", "show", copy, "--json").json["messages"]
    assert [each["content"] for each in messages] == ["Say x."]
