"""The conversation on a terminal: a real program in a real (pseudo) terminal."""

import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ECHO
from tests.models import wire_openai as wire
from tests.models.wire_http import WireServer

pytestmark = pytest.mark.slow("each case starts the program on a terminal of its own")

PROMPT = "\x1b[?2004h"  # the line editor enables bracketed paste
READS = {"risk": {"read": ["*"]}}
CTRL_C, CTRL_D, ALT_ENTER = "\x03", "\x04", "\x1b\r"


def stored_messages(interlock) -> list[dict[str, object]]:
    messages = []
    for each in interlock("conversations", "list", "--json").json:
        messages += interlock("conversations", "export", each["id"]).json["messages"]
    return messages


def test_a_conversation_runs_commands_and_stores_its_messages(
    terminal, servers, script, interlock, home: Path
):
    servers(broken={"command": "no-such-program"})
    chat = terminal("chat", "--model", script({"say": {"text": "x"}}, "I **said** it.", "Bye."))
    chat.expect("server 'broken' failed")
    chat.expect("6 tools")
    chat.expect(PROMPT)
    chat.type("Say x.\r")
    chat.expect("e:say(text=")
    chat.expect("said")
    chat.expect(PROMPT)
    chat.type("/help\r")
    chat.expect("/quit")
    chat.expect(PROMPT)
    chat.type("/tools\r")
    chat.expect("e:picture")
    chat.expect(PROMPT)
    chat.type("/tolls\r")
    chat.expect("unknown command /tolls; /help lists them")
    chat.expect(PROMPT)
    chat.type("bye\r")
    chat.expect("Bye.")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0
    assert [each["role"] for each in stored_messages(interlock)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    history = home / "data" / "interlock" / "history"
    assert "+Say x.\n" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def test_multiline_and_pasted_input_is_sent_as_one_message(terminal, script, interlock):
    chat = terminal("chat", "--model", script("One.", "Two.", "Three."))
    chat.expect(PROMPT)
    chat.type(f"a{ALT_ENTER}b\\\rc\r")
    chat.expect("One.")
    chat.expect(PROMPT)
    chat.type("\x1b[200~d\ne\n\x1b[201~f\r")
    chat.expect("Two.")
    chat.expect(PROMPT)
    chat.type(" /not a command\r")
    chat.expect("Three.")
    chat.expect(PROMPT)
    chat.type("/quit\r")

    assert chat.leave() == 0
    said = [each["content"] for each in stored_messages(interlock) if each["role"] == "user"]
    assert said == ["a\nb\nc", "d\ne\nf", "/not a command"]


def test_files_go_with_the_next_message_only(terminal, script, interlock, home: Path):
    (home / "a.txt").write_text("First.")
    (home / "b c.txt").write_text("Second.")
    chat = terminal("chat", "-a", "a.txt", "--model", script("One.", "Two."))
    chat.expect(PROMPT)
    chat.type("/attach 'b c.txt'\r")
    chat.expect("with the next message: a.txt (text/plain, 6 bytes), b c.txt")
    chat.expect(PROMPT)
    chat.type("/attach missing\r")
    chat.expect("error: cannot attach missing: No such file")
    chat.expect(PROMPT)
    chat.type("go\r")
    chat.expect("One.")
    chat.expect(PROMPT)
    chat.type("on\r")
    chat.expect("Two.")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0
    first, _, second, _ = (each["content"] for each in stored_messages(interlock))
    assert first.startswith("go\n\n<file id=")
    assert "\nFirst.\n" in first
    assert "\nSecond.\n" in first
    assert second == "on"


def test_undo_takes_back_a_turn_in_a_copy_of_the_conversation(terminal, servers, script, interlock):
    servers()
    chat = terminal("chat", "--model", script("One.", {"say": {"text": "x"}}, "Two.", "Three."))
    chat.expect(PROMPT)
    chat.type("/undo\r")
    chat.expect("no message to take back")
    chat.expect(PROMPT)
    chat.type("first\r")
    chat.expect("One.")
    chat.expect(PROMPT)
    chat.type("second\r")
    chat.expect("Two.")
    chat.expect(PROMPT)
    chat.type("/undo\r")
    chat.expect("took back: second")
    chat.expect(PROMPT)
    chat.type("third\r")
    chat.expect("Three.")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0
    listed = interlock("conversations", "list", "--json").json
    exported = [interlock("conversations", "export", each["id"]).json for each in listed]
    contents = [[each.get("content", "") for each in one["messages"]] for one in exported]
    assert contents == [
        ["first", "One.", "third", "Three."],
        ["first", "One.", "second", "", "x", "Two."],
    ]


def test_edit_sends_the_last_message_again_with_its_files(terminal, script, interlock, home: Path):
    (home / "a.txt").write_text("The file.")
    chat = terminal("chat", "-a", "a.txt", "--model", script("One.", "Two."))
    chat.expect(PROMPT)
    chat.type("frist\r")
    chat.expect("One.")
    chat.expect(PROMPT)
    chat.type("/edit\r")
    chat.expect("> frist")
    chat.type(CTRL_C)
    chat.expect(PROMPT)
    chat.type("/edit\r")
    chat.expect("> frist")
    chat.type("\x15first\r")  # Ctrl-U clears the line
    chat.expect("Two.")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0
    first, second = interlock("conversations", "list", "--json").json
    messages = interlock("conversations", "export", first["id"]).json["messages"]
    assert messages[0]["content"].startswith("first\n\n<file id=")
    assert "\nThe file.\n" in messages[0]["content"]
    assert [each["role"] for each in messages] == ["user", "assistant"]
    assert second["message_count"] == 2


def test_ctrl_c_stops_the_answer_and_the_conversation_continues(
    terminal, servers, script, interlock
):
    servers()
    chat = terminal("chat", "--model", script({"wait": {}}, "After."))
    chat.expect(PROMPT)
    chat.type("wait\r")
    chat.expect("e:wait()")
    chat.type(CTRL_C)
    chat.expect("stopped")
    chat.expect(PROMPT)
    chat.type(f"never sent{CTRL_C}and?\r")
    chat.expect("After.")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0
    messages = stored_messages(interlock)
    said = [(each["role"], each.get("content")) for each in messages]
    assert [role for role, _ in said] == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]
    assert "interrupted" in said[2][1]
    assert messages[3]["unfinished"] == {"reason": "stopped"}
    assert said[4] == ("user", "and?")


def test_text_of_an_answer_stopped_by_ctrl_c_is_kept_and_continued_as_unfinished(
    terminal, interlock, served: WireServer
):
    pieces = [wire.chunk(role="assistant"), wire.chunk(content="One two ")]
    served.script = [wire.chunks(*pieces, done=False)._replace(hangs=True), wire.says("Three.")]
    chat = terminal("chat", "--no-tools", "--model", f"openai:m@{served.root}/v1")
    chat.expect(PROMPT)
    chat.type("Count.\r")
    chat.expect("One two")
    chat.type(CTRL_C)
    chat.expect("stopped")
    chat.expect(PROMPT)
    chat.type(CTRL_D)
    assert chat.leave() == 0

    ran = interlock("chat", "-c", "--no-tools", "And then?")

    assert (ran.code, ran.out) == (0, "Three.\n")
    told = [each["content"] for each in served.asked[-1].body["messages"]]
    note = "[The user stopped this answer before it was complete.]"
    assert told == ["Count.", "One two ", note, "And then?"]
    (conversation,) = interlock("conversations", "list", "--json").json
    shown = interlock("conversations", "show", conversation["id"]).out
    assert "[ASSISTANT] One two \n[UNFINISHED] stopped by the user\n[USER] And then?" in shown


def test_a_failed_model_can_be_replaced_in_the_conversation(terminal, script, tmp_path: Path):
    other = tmp_path / "other.json"
    other.write_text('[{"content": "Better."}]')
    chat = terminal("chat", "--model", script())
    chat.expect(PROMPT)
    chat.type("hello\r")
    chat.expect("error: the script of")
    chat.expect(PROMPT)
    chat.type("/model nobody:x\r")
    chat.expect("error: unknown model provider 'nobody'")
    chat.expect(PROMPT)
    chat.type(f"/model scripted:{other}\r")
    chat.expect(f"model scripted:{other}")
    chat.expect(PROMPT)
    chat.type("hello\r")
    chat.expect("Better.")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0


def test_new_starts_another_conversation(terminal, script, interlock):
    chat = terminal("chat", "--model", script("One.", "Two."))
    chat.expect(PROMPT)
    chat.type("a\r")
    chat.expect("One.")
    chat.expect(PROMPT)
    chat.type("/new\r")
    chat.expect("new conversation")
    chat.expect(PROMPT)
    chat.type("b\r")
    chat.expect("Two.")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0
    listed = interlock("conversations", "list", "--json").json
    assert sorted((each["title"], each["message_count"]) for each in listed) == [("a", 2), ("b", 2)]


def test_control_characters_of_models_and_tools_are_escaped(terminal, servers, script):
    servers()
    model = script({"say": {"text": "x\x9b2J\u202e"}}, "<b>\x1b]0;owned\x07 \u202e</b>\n\n1\n\n2")
    chat = terminal("chat", "go", "--model", model, controls=False)

    assert chat.leave() == 0
    assert "x\\x9b2J\\u202e" in chat.seen
    assert "<b>\\x1b]0;owned\\x07 \\u202e</b>" in chat.seen
    assert not {"\x9b", "\u202e", "\x07"} & set(chat.seen)


def test_no_color_disables_colours(terminal, servers, script):
    servers()
    chat = terminal(
        "chat", "go", "--model", script({"fail": {}}, "`x`"), controls=False, NO_COLOR="1"
    )

    assert chat.leave() == 0
    assert "✗" in chat.seen
    assert "\x1b[31m" not in chat.seen
    assert "\x1b[36m" not in chat.seen


def test_a_dumb_terminal_shows_plain_lines(terminal, servers, script):
    servers()
    chat = terminal(
        "chat",
        "go",
        "--model",
        script({"say": {"text": "\x1b"}}, "**x**"),
        controls=False,
        TERM="dumb",
    )

    assert chat.leave() == 0
    assert "\x1b" not in chat.seen
    assert "[TOOL] e:say ok" in chat.seen
    assert "**x**\r\n" in chat.seen


def test_a_missing_line_editor_is_an_error_with_the_extra_to_install(terminal, without, script):
    path = without("prompt_toolkit")["PYTHONPATH"]
    chat = terminal("chat", "--model", script("x"), controls=False, PYTHONPATH=path)

    assert chat.leave() == 1
    assert "needs the extra chat: " in chat.seen


def test_a_continued_conversation_shows_its_title(terminal, script, interlock):
    interlock("chat", "first", "--model", script("One."))
    (listed,) = interlock("conversations", "list", "--json").json
    chat = terminal("chat", "--conversation", listed["id"][:4])
    chat.expect("2 messages of 'first'")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0


def test_a_call_on_a_terminal_shows_progress_and_stops_on_ctrl_c(terminal, servers):
    servers()
    call = terminal("call", "e:wait")
    call.expect("e:wait 50% half-way")
    call.type(CTRL_C)

    assert call.leave() == 130


def test_a_server_that_exits_in_a_conversation_is_reported(terminal, servers, script):
    servers()
    chat = terminal("chat", "--model", script({"exit": {}}, "Oh."))
    chat.expect(PROMPT)
    chat.type("go\r")
    chat.expect("Oh.")
    chat.expect("warning: server 'e' is down: ")
    chat.expect("exited with code 3")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0


def test_input_typed_during_an_answer_becomes_the_next_message(
    terminal, servers, script, interlock
):
    servers(e={"command": sys.executable, "args": ECHO, "timeout": 1, "tools": READS})
    chat = terminal("chat", "--model", script({"wait": {}}, "One.", "Two.", "Three."))
    chat.expect(PROMPT)
    chat.type("first\r")
    chat.expect("half-way")
    chat.type("second\rthird")
    chat.expect("One.")
    chat.expect(PROMPT)
    chat.expect("Two.")
    chat.expect(PROMPT)
    chat.expect("third")
    chat.type(" too\r")
    chat.expect("Three.")
    chat.expect(PROMPT)
    chat.type(CTRL_D)

    assert chat.leave() == 0
    said = [each["content"] for each in stored_messages(interlock) if each["role"] == "user"]
    assert said == ["first", "second", "third too"]
    during, _, _ = chat.seen.partition("One.")
    assert "second" not in during
