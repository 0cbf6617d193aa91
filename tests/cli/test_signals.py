"""Signals, closed terminals and kills: the servers end, and the conversation stays valid."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from interlock.cli.doctor import children
from tests.cli.conftest import ECHO
from tests.support.rows import each_row

pytestmark = pytest.mark.slow("each case starts the program, with servers")

PROMPT = "\x1b[?2004h"  # the line editor enables bracketed paste
ECHO_SERVER = {"command": sys.executable, "args": ECHO}
TIME = Path(sys.executable).with_name("mcp-server-time")


def children_of(parent: int) -> list[int]:
    return [child.id for child in children() if child.parent == parent]


def wait_until(condition: Callable[[], object]) -> None:
    """Poll for a condition that sends no event, such as the end of an orphan."""
    while not condition():
        sleep(0.01)


@pytest.fixture
def start_hanging_chat(program, servers, script) -> Callable[..., subprocess.Popen[str]]:
    """Start a chat with two servers that runs a call without end."""

    def start(other: dict[str, Any]) -> subprocess.Popen[str]:
        servers(other=other)
        chat = program("chat", "x", "--model", script({"wait": {}}))
        assert chat.stderr.readline() == "[TOOL] e:wait()\n"
        assert len(children_of(chat.pid)) == 2
        return chat

    return start


@pytest.mark.parametrize(
    ("number", "code", "other"),
    [
        (signal.SIGINT, 130, {"command": str(TIME)}),  # a server that other people wrote
        (signal.SIGTERM, 143, ECHO_SERVER),
        (signal.SIGHUP, 129, ECHO_SERVER),
    ],
)
def test_a_signal_ends_the_servers_and_stores_an_interrupted_result(
    start_hanging_chat, interlock, number: int, code: int, other: dict[str, Any]
):
    chat = start_hanging_chat(other)
    chat.send_signal(number)
    out, err = chat.communicate()

    assert (chat.returncode, out, err) == (code, "", "")
    assert children_of(chat.pid) == []
    (listed,) = interlock("conversations", "list", "--json").json
    messages = interlock("conversations", "export", listed["id"]).json["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant"]
    assert "interrupted" in messages[2]["content"]
    assert messages[3]["unfinished"]["reason"] == "stopped"


def test_the_servers_of_a_killed_program_end_soon(start_hanging_chat, interlock, script):
    chat = start_hanging_chat(ECHO_SERVER)
    chat.kill()
    chat.wait()

    wait_until(lambda: not children_of(chat.pid))
    (listed,) = interlock("conversations", "list", "--json").json
    ran = interlock("chat", "y", "--conversation", listed["id"], "--model", script("Yes."))
    assert (ran.code, ran.out) == (0, "Yes.\n")


def test_a_second_signal_ends_the_program_at_once(program, servers, script, home: Path):
    # A server whose start is interrupted is killed, so it waits for the first message.
    stubborn = "trap '' TERM; read _; touch begun; cat > /dev/null; touch ending"
    stubborn += "; while :; do sleep 1; done"
    servers(slow={"command": "sh", "args": ["-c", stubborn], "connectTimeout": 60})
    chat = program("chat", "x", "--model", script("Yes."))
    wait_until((home / "begun").exists)
    chat.terminate()
    wait_until((home / "ending").exists)
    chat.terminate()
    chat.wait()

    assert chat.returncode == -signal.SIGTERM  # 143 would mean that it waited for the server
    wait_until(lambda: not children_of(chat.pid))


def test_an_interrupted_call_leaves_no_process(program, servers):
    servers()
    call = program("call", "e:wait")
    wait_until(lambda: children_of(call.pid))
    call.send_signal(signal.SIGINT)

    assert call.wait() == 130
    assert call.stderr.read() == ""
    assert children_of(call.pid) == []


def test_a_signal_that_the_parent_ignores_stays_ignored(program, servers, script):
    servers()
    chat = program(
        "chat",
        "x",
        "--model",
        script({"wait": {}}),
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    chat.stderr.readline()
    chat.send_signal(signal.SIGHUP)
    chat.send_signal(signal.SIGTERM)

    assert chat.wait() == 143


@pytest.mark.parametrize("when", ["at the prompt", "in an answer"])
def test_a_closed_terminal_ends_the_conversation_and_its_servers(
    terminal, servers, script, when: str
):
    servers()
    chat = terminal("chat", "--model", script({"wait": {}}))
    chat.expect(PROMPT)
    if when == "in an answer":
        chat.type("wait\r")
        chat.expect("e:wait()")
    id = chat.id
    chat.hang_up()

    assert chat.leave() in (0, 120, 129)  # 120: Python could not write to the terminal
    assert children_of(id) == []


def test_sigterm_at_the_prompt_restores_the_terminal(terminal, servers, script):
    servers()
    chat = terminal("chat", "--model", script("Yes."))
    chat.expect(PROMPT)
    os.kill(chat.id, signal.SIGTERM)
    chat.expect("\x1b[?2004l")

    assert chat.leave() == 143
    assert children_of(chat.id) == []


def test_a_closed_stdout_ends_the_chat_without_a_traceback(program, servers, script):
    servers()
    read, write = os.pipe()
    os.close(read)
    chat = program("chat", "x", "--model", script({"say": {}}, "Yes."), stdout=write)
    os.close(write)

    assert chat.wait() == 1
    assert "Traceback" not in chat.stderr.read()
    assert children_of(chat.pid) == []


@each_row(("command", "last_line"), [("run one.py", "serving at http"), ("serve", "VS Code: code")])
def test_ctrl_c_ends_a_service_and_the_line_that_shows_it(
    terminal, home: Path, servers, monkeypatch: pytest.MonkeyPatch, command: str, last_line: str
):
    servers()
    (home / "one.py").write_text('from interlock import Server\n\nserver = Server("one")\n')
    monkeypatch.chdir(home)
    shown = terminal(*command.split(), "--http", "127.0.0.1:0")
    shown.expect(last_line)
    shown.type("\x03")

    shown.expect("^C\r\n")
    assert shown.leave() == 0
