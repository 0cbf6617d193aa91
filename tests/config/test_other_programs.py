"""Files of other programs are read as they are, without a warning at every command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.config import Config, HttpServer, StdioServer, loads
from interlock.config.resolving import resolve
from interlock.errors import ConfigError
from tests.support.rows import each_row


def read(server: dict[str, Any], root: str = "mcpServers") -> Config:
    return loads(msgspec.json.encode({root: {"s": server}}))


@each_row("member", ["serverUrl", "httpUrl", "url"])
def test_url_is_read_under_the_names_of_other_programs(member: str):
    config = read({member: "https://mcp.example/mcp"})

    server = config.servers["s"]
    assert isinstance(server, HttpServer)
    assert (server.url, config.warnings) == ("https://mcp.example/mcp", ())


@each_row(
    ("root", "server"),
    [
        ("context_servers", {"source": "custom", "command": "x", "settings": {}}),
        ("servers", {"type": "stdio", "command": "x", "dev": {"watch": "*"}, "version": "1"}),
        ("mcpServers", {"command": "x", "trust": True, "description": "d"}),
        ("mcpServers", {"command": "x", "autoApprove": ["a"], "transportType": "stdio"}),
    ],
)
def test_members_of_other_programs_cause_no_warning(root: str, server: dict[str, Any]):
    config = read(server, root)

    assert isinstance(config.servers["s"], StdioServer)
    assert config.warnings == ()


def test_lists_of_tools_and_milliseconds_of_gemini_are_understood():
    server = read({"command": "x", "includeTools": ["a"], "excludeTools": ["b"], "timeout": 5000})

    found = server.servers["s"]
    assert (found.tools.allow, found.tools.deny, found.timeout) == (("a",), ("b",), 5.0)


def test_folders_of_editors_are_filled_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ann")
    server = read({"command": "${userHome}/x", "args": ["${workspaceFolder}${/}a"]}).servers["s"]
    resolved = resolve(server, {})

    assert isinstance(resolved, StdioServer)
    assert (resolved.command, resolved.args) == ("/home/ann/x", (f"{tmp_path}/a",))


def test_variables_of_an_env_file_are_weaker_than_env(tmp_path: Path):
    file = tmp_path / "x.env"
    file.write_text('# keys\nexport A=1\nB="two words" \nC=3 # three\nD=4\n\nrubbish\n')
    server = read({"command": "x", "envFile": "${FOLDER}/x.env", "env": {"D": "5"}}).servers["s"]
    resolved = resolve(server, {"FOLDER": str(tmp_path)})

    assert isinstance(resolved, StdioServer)
    assert resolved.env == {"A": "1", "B": "two words", "C": "3", "D": "5"}


def test_env_file_that_cannot_be_read_is_an_error_with_its_path():
    server = read({"command": "x", "envFile": "/no/such/file"}).servers["s"]

    with pytest.raises(ConfigError, match="envFile /no/such/file cannot be read: No such file"):
        resolve(server, {})
