"""However the program ends, no process of its servers is left, and the conversation is whole."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from interlock.cli.doctor import children

PROMPT = "\x1b[?2004h"  # the line editor asks for marks around what is pasted
TIME = Path(sys.executable).with_name("mcp-server-time")


def of(parent: int) -> list[int]:
    return [child.id for child in children() if child.parent == parent]


def within(seconds: float, condition: Callable[[], object]) -> bool:
    """Wait for what tells nobody when it happens, such as the end of an orphan."""
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            return False
        sleep(0.01)
    return True


@pytest.fixture
def waiting(program, servers, script) -> Callable[[], subprocess.Popen[str]]:
    """A chat with two servers, one of them real, in the middle of a call that does not end."""
    servers(time={"command": str(TIME)})

    def start() -> subprocess.Popen[str]:
        chat = program("chat", "x", "--model", script({"wait": {}}))
        assert chat.stderr.readline() == "[TOOL] e:wait()\n"
        assert len(of(chat.pid)) == 2
        return chat

    return start


@pytest.mark.parametrize(
    ("sign", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_servers_and_answers_the_call(waiting, interlock, sign: int, code: int):
    chat = waiting()
    chat.send_signal(sign)
    out, err = chat.communicate(timeout=20)

    assert (chat.returncode, out, err) == (code, "", "")
    assert of(chat.pid) == []
    (listed,) = interlock("conversations", "list", "--json").json
    messages = interlock("conversations", "export", listed["id"]).json["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "tool"]
    assert "interrupted" in messages[2]["content"]


def test_killed_its_servers_are_gone_soon(waiting, interlock, script):
    chat = waiting()
    chat.kill()
    chat.wait()

    assert within(20, lambda: not of(chat.pid))
    (listed,) = interlock("conversations", "list", "--json").json
    ran = interlock("chat", "y", "--conversation", listed["id"], "--model", script("Yes."))
    assert (ran.code, ran.out) == (0, "Yes.\n")


def test_a_second_signal_does_not_wait(program, servers, script, home: Path):
    stubborn = "trap '' TERM; touch begun; cat > /dev/null; touch ending; while :; do sleep 1; done"
    servers(slow={"command": "sh", "args": ["-c", stubborn], "connectTimeout": 60})
    chat = program("chat", "x", "--model", script("Yes."))
    assert within(20, (home / "begun").exists)
    chat.terminate()
    assert within(20, (home / "ending").exists)
    chat.terminate()
    chat.wait(20)

    assert chat.returncode == -signal.SIGTERM  # not 143, as when it has waited for the server
    assert within(20, lambda: not of(chat.pid))


def test_a_call_that_is_stopped_leaves_nothing(program, servers):
    servers(time={"command": str(TIME)})
    call = program("call", "e:wait")
    assert within(20, lambda: of(call.pid))
    call.send_signal(signal.SIGINT)

    assert call.wait(20) == 130
    assert call.stderr.read() == ""
    assert of(call.pid) == []


def test_what_the_parent_ignores_stays_ignored(program, servers, script):
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

    assert chat.wait(20) == 143


@pytest.mark.parametrize("when", ["at the prompt", "in an answer"])
def test_a_terminal_that_goes_away_ends_the_conversation(terminal, servers, script, when: str):
    servers()
    chat = terminal("chat", "--model", script({"wait": {}}))
    chat.expect(PROMPT)
    if when == "in an answer":
        chat.type("wait\r")
        chat.expect("e:wait()")
    id = chat.id
    chat.hang_up()

    assert chat.leave() in (0, 129)
    assert of(id) == []


def test_ended_at_the_prompt_the_terminal_is_left_in_order(terminal, servers, script):
    servers()
    chat = terminal("chat", "--model", script("Yes."))
    chat.expect(PROMPT)
    os.kill(chat.id, signal.SIGTERM)
    chat.expect("\x1b[?2004l")

    assert chat.leave() == 143
    assert of(chat.id) == []


def test_the_reader_of_an_answer_may_leave(program, servers, script):
    servers()
    read, write = os.pipe()
    os.close(read)
    chat = program("chat", "x", "--model", script({"say": {}}, "Yes."), stdout=write)
    os.close(write)

    assert chat.wait(20) == 1
    assert "Traceback" not in chat.stderr.read()
    assert of(chat.pid) == []
