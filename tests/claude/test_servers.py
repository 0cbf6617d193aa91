"""Servers that Claude Code dials itself."""

from __future__ import annotations

import msgspec
import pytest

from interlock import Server
from interlock.claude.servers import direct_configuration
from interlock.config import loads
from interlock.errors import ConfigError
from tests.support.rows import each_row

CONFIG = {
    "program": {"command": "notes", "args": ["-v"], "env": {"KEY": "${NOTES_KEY}"}},
    "remote": {"url": "https://a.example/mcp", "headers": {"X-Key": "k"}},
    "elsewhere": {"command": "notes", "cwd": "/srv"},
}


def test_direct_servers_get_their_variables_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES_KEY", "secret")
    servers = loads(msgspec.json.encode({"mcpServers": CONFIG})).servers

    found = direct_configuration(servers, ["program", "remote"])

    assert found["program"] == {
        "type": "stdio",
        "command": "notes",
        "args": ["-v"],
        "env": {"KEY": "secret"},
    }
    assert found["remote"]["headers"] == {"X-Key": "k"}


@each_row(
    ("name", "problem"),
    [
        ("elsewhere", "has a cwd, which Claude Code does not support"),
        ("unknown", "is not a configured server"),
        ("object", "is not a configured server"),
    ],
)
def test_a_server_that_claude_code_cannot_connect_to_is_refused(name: str, problem: str) -> None:
    servers = loads(msgspec.json.encode({"mcpServers": CONFIG})).servers

    with pytest.raises(ConfigError, match=f"direct server '{name}' {problem}"):
        direct_configuration({**servers, "object": Server("s")}, [name])
