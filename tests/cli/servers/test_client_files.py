"""Entries in the files of other MCP clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.cli.servers.client_files import ClientFile, place_of
from interlock.errors import ConfigError
from tests.support.rows import each_row


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@each_row(
    ("client", "scope", "file", "key"),
    [
        ("claude", "project", ".mcp.json", "mcpServers"),
        ("cursor", "project", ".cursor/mcp.json", "mcpServers"),
        ("vscode", "project", ".vscode/mcp.json", "servers"),
        ("claude", "user", "home/.claude.json", "mcpServers"),
        ("cursor", "user", "home/.cursor/mcp.json", "mcpServers"),
    ],
)
def test_each_client_has_its_own_file(here: Path, client: str, scope: str, file: str, key: str):
    place = place_of(client, scope)

    assert (place.path, place.keys, place.is_shared) == (here / file, (key,), scope == "project")


@each_row(("client", "scope"), [("cursor", "local"), ("claude-desktop", "project")])
def test_a_scope_that_a_client_lacks_is_refused(here: Path, client: str, scope: str):
    with pytest.raises(ConfigError, match=f"{client} has no scope '?{scope}"):
        place_of(client, scope)


def test_variables_are_written_as_the_client_reads_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KEY", "secret")
    entries = [
        ClientFile(client, "user", Path("f"), (), form).of_program("x", [], {"K": "${env:KEY}"})[
            "env"
        ]
        for client, form in (("claude", "${%s}"), ("cursor", "${env:%s}"), ("claude-desktop", ""))
    ]

    assert [each["K"] for each in entries] == ["${KEY}", "${env:KEY}", "secret"]


def test_a_value_is_never_written_into_a_shared_file(here: Path):
    place = place_of("claude", "project")

    with pytest.raises(ConfigError, match=r"env\.K has a value, and .* is shared"):
        place.of_program("x", [], {"K": "secret"})
    with pytest.raises(ConfigError, match=r"headers\.Authorization has a value"):
        place.of_url("https://a.example/mcp", {"Authorization": "Bearer secret"})


def test_a_default_that_a_client_cannot_express_is_refused():
    place = ClientFile("vscode", "user", Path("f"), (), "${env:%s}")

    with pytest.raises(ConfigError, match=r"env\.K has a default, which vscode does not support"):
        place.of_program("x", [], {"K": "${KEY:-1}"})
