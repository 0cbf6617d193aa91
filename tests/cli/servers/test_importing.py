"""`interlock servers import`: servers of other programs on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TIME = {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"], "env": {"K": "canary"}}
NOTES = {"url": "https://notes.example/mcp"}
FILES = {
    ".claude.json": "mcpServers",
    "config/Claude/claude_desktop_config.json": "mcpServers",
    "config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json": (
        "mcpServers"
    ),
    ".cursor/mcp.json": "mcpServers",
    ".gemini/settings.json": "mcpServers",
    "config/Code/User/mcp.json": "servers",
    ".codeium/windsurf/mcp_config.json": "mcpServers",
    "config/zed/settings.json": "context_servers",
}


def write(path: Path, key: str, **servers: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"theme": "dark", key: servers}))


def test_servers_of_every_program_are_found_and_nothing_is_written(interlock, home):
    for number, (name, key) in enumerate(FILES.items()):
        write(home / name, key, **{f"s{number}": TIME})
    ran = interlock("servers", "import", "--json")

    found = {each["server"]: each for each in ran.json["servers"]}
    assert [found[f"s{n}"]["state"] for n in range(len(FILES))] == ["new"] * len(FILES)
    assert len({each["program"] for each in found.values()}) == len(FILES)
    assert found["s0"]["target"] == "mcp-server-time --local-timezone UTC"
    assert "canary" not in ran.out + ran.err
    assert not (home / "config/interlock/mcp.json").exists()


def test_imported_servers_work_as_their_program_has_them(interlock, home):
    write(home / ".cursor/mcp.json", "mcpServers", time=TIME, notes=NOTES)
    ran = interlock("servers", "import", "cursor", "--yes")
    written = json.loads((home / "config/interlock/mcp.json").read_text())["mcpServers"]

    assert ran.code == 0
    assert written == {"time": TIME, "notes": {"type": "http", **NOTES}}


def test_a_wrong_entry_costs_no_other_and_is_named(interlock, home):
    write(home / ".cursor/mcp.json", "mcpServers", bad={"command": 5}, time=TIME)
    ran = interlock("servers", "import", "--yes")
    written = json.loads((home / "config/interlock/mcp.json").read_text())["mcpServers"]

    assert "mcpServers.bad.command must be a string" in ran.out
    assert list(written) == ["time"]


def test_a_file_that_is_not_json_is_a_warning(interlock, home):
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").write_text("{")
    write(home / ".gemini/settings.json", "mcpServers", time=TIME)
    ran = interlock("servers", "import")

    assert ran.code == 0
    assert ".cursor/mcp.json of cursor cannot be read" in ran.err
    assert "time" in ran.out


@pytest.mark.parametrize(
    ("own", "state"),
    [(TIME, "there"), ({"command": "other"}, "clash")],
    ids=["the same", "another"],
)
def test_a_server_of_this_name_in_your_file_stays(interlock, home, servers, own, state):
    file = servers(time=own)
    before = file.read_text()
    write(home / ".cursor/mcp.json", "mcpServers", time=TIME)
    found = interlock("servers", "import", "--json").json["servers"]
    interlock("servers", "import", "--yes")

    assert [each["state"] for each in found] == [state]
    assert file.read_text() == before


def test_import_uses_the_first_program_for_a_server_name_that_two_programs_have(interlock, home):
    write(home / ".cursor/mcp.json", "mcpServers", time=TIME)
    write(home / ".gemini/settings.json", "mcpServers", time={"command": "other"})
    ran = interlock("servers", "import", "--yes")
    written = json.loads((home / "config/interlock/mcp.json").read_text())["mcpServers"]

    assert "a program above has a server of this name, too" in ran.out
    assert written["time"]["command"] == "mcp-server-time"


def test_a_name_that_no_program_has_is_an_error(interlock, home):
    write(home / ".cursor/mcp.json", "mcpServers", time=TIME)
    ran = interlock("servers", "import", "--server", "tme", "--yes")

    assert ran.code == 1
    assert "no program on this machine has a server 'tme'" in ran.err
