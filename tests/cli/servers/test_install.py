"""`interlock install` and `uninstall`: entries in the files of four clients."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.rows import each_row

PLACES = {
    "claude-desktop": ("config/Claude/claude_desktop_config.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": ("config/Code/User/mcp.json", "servers"),
}
CODE = 'from interlock import Server\n\nserver = Server("notes")\n'


@pytest.fixture
def notes(home: Path) -> Path:
    """A Python file with a server."""
    path = home / "notes.py"
    path.write_text(CODE)
    return path


@pytest.mark.parametrize(
    ("client", "scope", "place"),
    [
        *((client, "user", place) for client, place in PLACES.items()),
        ("claude", "project", (".mcp.json", "mcpServers")),
    ],
)
def test_install_and_uninstall_keep_comments_and_other_servers(
    client: str, scope: str, place: tuple[str, str], interlock, home: Path, notes: Path
):
    name, key = place
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    before = f'{{\n  // mine\n  "{key}": {{\n    "other": {{"command": "x"}}\n  }}\n}}\n'
    target = home / "dotfiles" / "servers.json"
    target.parent.mkdir()
    target.write_text(before)
    target.chmod(0o640)
    path.symlink_to(target)

    assert interlock("install", client, "notes.py", "--scope", scope).code == 0
    after = path.read_text()
    assert path.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o640
    assert "// mine" in after
    assert str(notes) in after
    assert sys.executable in after
    assert path.with_name(f"{path.name}.backup").read_text() == before

    if scope == "project":
        assert "in the scope user; --scope names" in interlock("uninstall", client, "notes").err
    assert interlock("uninstall", client, "notes", "--scope", scope).code == 0
    assert path.read_text() == before


def test_install_creates_a_missing_file_with_absolute_paths(interlock, home: Path, notes: Path):
    interlock("install", "cursor", "notes.py:server")

    entry = json.loads((home / ".cursor/mcp.json").read_text())["mcpServers"]["server"]
    assert entry["args"] == ["-m", "interlock", "run", f"{notes}:server"]
    assert Path(entry["command"]).is_absolute()


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_entry_made_by_another_program_is_shown_without_secrets_and_kept(
    command: str, interlock, home: Path, notes: Path
):
    path = home / ".cursor" / "mcp.json"
    path.parent.mkdir()
    before = '{"mcpServers": {"notes": {"command": "mine", "env": {"KEY": "s3cr3t"}}}}'
    path.write_text(before)

    name = "notes.py" if command == "install" else "notes"
    ran = interlock(command, "cursor", name)

    assert ran.code == 1
    assert "another server 'notes'" in ran.err
    assert "mine" in ran.err
    assert "s3cr3t" not in ran.err
    assert path.read_text() == before

    forced = interlock(
        command, "cursor", "--force", *(["notes.py"] if command == "install" else ["notes"])
    )
    assert forced.code == 0
    assert path.read_text() != before


def test_entry_that_was_edited_is_kept_without_force(interlock, home: Path, notes: Path):
    interlock("install", "cursor", "notes.py")
    path = home / ".cursor" / "mcp.json"
    path.write_text(path.read_text().replace('"run"', '"walk"'))

    assert interlock("uninstall", "cursor", "notes").code == 1


def test_install_warns_of_other_users_who_can_read_the_values_of_an_entry(interlock, home, servers):
    servers(x={"command": sys.executable, "env": {"TOKEN": "secret"}})
    file = home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text("{}")
    file.chmod(0o644)

    ran = interlock("install", "cursor", "x")

    assert f"other users can read {file} (mode 644)" in ran.err
    assert "secret" not in ran.err


def test_configured_server_in_a_shared_file_needs_variables_for_values(interlock, servers, home):
    program = {"command": sys.executable, "args": ["-V"]}
    servers(
        plain={**program, "env": {"KEY": "s3cr3t"}},
        named={**program, "env": {"KEY": "${MY_KEY}"}},
    )

    refused = interlock("install", "vscode", "plain", "--scope", "project")
    assert refused.code == 1
    assert "env.KEY has a value" in refused.err
    assert interlock("install", "vscode", "named", "--scope", "project").code == 0

    text = (home / ".vscode" / "mcp.json").read_text()
    assert json.loads(text)["servers"]["named"]["env"] == {"KEY": "${env:MY_KEY}"}


def test_desktop_client_gets_values_as_it_has_no_variables(
    interlock, servers, home: Path, monkeypatch
):
    monkeypatch.setenv("MY_KEY", "s3cr3t")
    servers(named={"command": sys.executable, "env": {"KEY": "${MY_KEY}"}})
    interlock("install", "claude-desktop", "named")

    path = home / PLACES["claude-desktop"][0]
    assert json.loads(path.read_text())["mcpServers"]["named"]["env"] == {"KEY": "s3cr3t"}
    assert path.stat().st_mode & 0o777 == 0o600


@each_row(
    ("arguments", "error"),
    [
        (("cursor",), "name a SERVER, or give --check"),
        (("cursor", "absent.py"), "file absent.py does not exist"),
        (("cursor", "nobody"), "no server 'nobody'"),
        (("cursor", "https://x.test/mcp", "--name", "a b"), "name 'a b' is not"),
        (("claude-desktop", "https://x.test/mcp"), "Claude Desktop reads no URLs"),
        (("cursor", "notes.py", "--scope", "local"), "cursor has no scope 'local'"),
    ],
)
def test_install_of_a_server_that_the_client_cannot_use_is_refused(
    arguments: tuple[str, ...], error: str, interlock, home: Path, notes: Path
):
    ran = interlock("install", *arguments)

    assert ran.code in (1, 2)
    assert error in ran.err
    assert not (home / ".cursor").exists()


def test_print_shows_the_entry_and_changes_nothing(interlock, home: Path):
    ran = interlock("install", "vscode", "https://gateway.test/mcp", "--print")

    assert ran.json == {
        "servers": {"interlock": {"type": "http", "url": "https://gateway.test/mcp"}}
    }
    assert not (home / "config").exists()


@pytest.mark.slow("starts a program")
def test_check_starts_the_entries_and_reports_failures(interlock, home: Path, notes: Path):
    interlock("install", "cursor", "notes.py")
    good = interlock("install", "cursor", "--check")
    notes.write_text("raise SystemExit(3)\n")
    bad = interlock("install", "cursor", "--check")

    assert (good.code, good.err) == (0, "notes: ok, 0 tools\n")
    assert bad.code == 1
    assert "server 'notes' failed" in bad.err
