"""Values that the servers' file asks for, at a terminal and without one."""

import json
import sys
from pathlib import Path

import pytest
from keyring.errors import KeyringLocked

from tests.cli.conftest import ECHO
from tests.oauth.support import Safe


@pytest.fixture
def asking(home: Path) -> Path:
    """Write a file in which one server needs three answers, and another one none."""
    path = home / "mcp.json"
    echo = {"command": sys.executable, "args": ECHO}
    tool = [*ECHO, "extra=in_${input:zone}"]
    inputs = [
        {"id": "key", "type": "promptString", "description": "The key", "password": True},
        {"id": "zone", "type": "pickString", "options": ["east", "west"], "default": "west"},
    ]
    servers = {
        "asks": {**echo, "args": tool, "env": {"A": "${input:key}", "B": "${input:key}"}},
        "e": echo,
    }
    path.write_text(json.dumps({"inputs": inputs, "servers": servers}))
    return path


def test_without_a_terminal_only_the_server_with_the_input_fails(
    interlock, asking: Path, monkeypatch: pytest.MonkeyPatch
):
    ran = interlock("tools", "--config", asking)

    assert ran.code == 0
    assert "e:say" in ran.out
    assert "asks:" not in ran.out
    assert "${input:zone}, which has no answer" in ran.err
    assert "INTERLOCK_INPUT_ZONE" in ran.err
    monkeypatch.setenv("INTERLOCK_INPUT_KEY", "canary")
    monkeypatch.setenv("INTERLOCK_INPUT_ZONE", "east")
    assert "asks:in_east" in interlock("tools", "asks", "--config", asking).out


@pytest.mark.slow("starts a program on a terminal")
def test_each_input_is_asked_for_once_and_a_secret_is_not_shown(terminal, asking: Path):
    call = terminal("call", "asks:in_west", "text=done", "--config", asking)
    call.expect("The key: ")
    call.type("canary\r")
    call.expect("zone (east, west) [west]: ")
    call.type("north\r")
    call.expect("answer one of east, west")
    call.expect("zone (east, west) [west]: ")
    call.type("\r")
    call.expect("done")

    assert call.leave() == 0
    assert "canary" not in call.seen
    assert call.seen.count("The key") == 1


@pytest.mark.slow("opens a database")
def test_stored_credentials_of_the_local_user_are_filled_in(interlock, home: Path):
    path = home / "mcp.json"
    echo = {"command": sys.executable, "args": ECHO, "sharing": "per_user"}
    env = {"TOKEN": "${user:TOKEN}"}
    path.write_text(json.dumps({"mcpServers": {"crm": {**echo, "env": env}}}))
    ran = interlock("call", "crm:say", "text=x", "--config", path)
    assert ran.code == 1
    assert "interlock credentials set SERVER TOKEN --user local" in ran.err

    stored = ("credentials", "set", "crm", "TOKEN", "--user", "local", "--config", path)
    assert interlock(*stored, stdin=b"secret").code == 0

    assert interlock("call", "crm:say", "text=x", "--config", path).out == "x\n"
    assert "crm:say" in interlock("tools", "--config", path).out


class Typing:
    """The user at the terminal: answers by the beginning of the question."""

    def __init__(self) -> None:
        self.answers = {"The key": "canary", "zone": "east", "Keep": "y"}
        self.asked: list[str] = []

    def line(self, question: str, *, is_secret: bool) -> str:
        found = next(each for each in self.answers if question.startswith(each))
        self.asked.append(found)
        return self.answers[found]


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Typing:
    made = Typing()
    monkeypatch.setattr("interlock.cli.servers.inputs._line", made.line)
    monkeypatch.setattr("interlock.cli.servers.inputs.is_terminal", lambda _: True)
    return made


@pytest.fixture
def safe(monkeypatch: pytest.MonkeyPatch) -> Safe:
    keyring = Safe()
    monkeypatch.setattr("interlock.oauth.keyrings.find", lambda: keyring)
    return keyring


@pytest.mark.slow("starts a program for each command")
def test_stored_inputs_are_not_asked_for_until_the_entry_changes(
    interlock, asking: Path, typing: Typing, safe: Safe
):
    def call(tool: str) -> tuple[str, list[str]]:
        typing.asked.clear()
        ran = interlock("call", f"asks:{tool}", "text=x", "--config", asking)
        assert "canary" not in ran.err
        return ran.out, [*typing.asked]

    assert call("in_east") == ("x\n", ["The key", "zone", "Keep"])
    assert sorted(safe.kept.values()) == ["canary", "east"]
    assert call("in_east") == ("x\n", [])

    before = asking.read_text()
    asking.write_text(before.replace('"A":', '"OTHER":'))  # another place for the secret
    typing.answers["Keep"] = ""
    assert call("in_east") == ("x\n", ["The key", "zone", "Keep"])
    assert len(safe.kept) == 2

    asking.write_text(before)
    forgotten = interlock("servers", "forget", "asks", "--config", asking)
    assert (forgotten.code, forgotten.err) == (0, "forgot 2 answers\n")
    assert safe.kept == {}
    typing.answers["zone"] = "west"
    assert call("in_west") == ("x\n", ["The key", "zone", "Keep"])


@pytest.mark.slow("starts a program")
def test_a_locked_keyring_is_a_warning_and_a_removed_server_leaves_no_answer(
    interlock, asking: Path, typing: Typing, safe: Safe
):
    def locked() -> None:
        raise KeyringLocked("the collection is locked")

    call = ("call", "asks:in_east", "text=x", "--config", asking)
    assert interlock(*call).out == "x\n"
    safe.broken = locked
    ran = interlock(*call)
    assert ran.out == "x\n"
    assert "warning: the keyring cannot be used: the collection is locked" in ran.err
    assert typing.asked == ["The key", "zone", "Keep", "The key", "zone"]

    safe.broken = None
    assert interlock("servers", "remove", "asks", "--config", asking).code == 0
    assert safe.kept == {}
