"""Values that the servers' file asks for, at a terminal and without one."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ECHO


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
