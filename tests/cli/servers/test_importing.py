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
    ".config/amp/settings.json": "amp.mcpServers",
    "config/Claude/claude_desktop_config.json": "mcpServers",
    "config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json": (
        "mcpServers"
    ),
    ".cursor/mcp.json": "mcpServers",
    ".config/opencode/opencode.json": "mcp",
    "config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json": (
        "mcpServers"
    ),
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
    wrong = {"bad": {"command": 5}, "none": None, "odd": {"type": "ws", "url": "wss://h"}}
    write(home / ".cursor/mcp.json", "mcpServers", **wrong, time=TIME)
    ran = interlock("servers", "import", "--yes")
    written = json.loads((home / "config/interlock/mcp.json").read_text())["mcpServers"]

    assert "cannot be used: line 1: mcpServers.bad.command must be a string" in ran.out
    assert "cannot be used: line 1: mcpServers.none must be an object, not null" in ran.out
    assert "mcpServers.odd has the type 'ws', not one of stdio" in ran.out
    assert list(written) == ["time"]


def test_servers_of_codex_are_read_from_toml(interlock, home):
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(
        'model = "x"\n[mcp_servers.time]\ncommand = "mcp-server-time"\ntool_timeout_sec = 90\n'
        "startup_timeout_ms = 20000\n[mcp_servers.time.env]\nN = 5\n"
        '[mcp_servers.notes]\nurl = "https://notes.example/mcp"\nbearer_token_env_var = "KEY"\n'
    )
    ran = interlock("servers", "import", "codex", "--yes")
    written = json.loads((home / "config/interlock/mcp.json").read_text())["mcpServers"]

    assert ran.code == 0
    assert written == {
        "time": {
            "command": "mcp-server-time",
            "env": {"N": "5"},
            "timeout": 90.0,
            "connectTimeout": 20.0,
        },
        "notes": {**NOTES, "type": "http", "headers": {"Authorization": "Bearer ${KEY}"}},
    }

    (home / ".codex/config.toml").write_text("[mcp_servers")
    assert "config.toml of codex cannot be read" in interlock("servers", "import", "codex").err


def test_milliseconds_of_a_program_become_seconds(interlock, home):
    write(home / ".gemini/settings.json", "mcpServers", slow={**TIME, "timeout": 3_600_000})
    write(home / ".cursor/mcp.json", "mcpServers", odd={**TIME, "timeout": 60_000})
    ran = interlock("servers", "import", "--yes")
    written = json.loads((home / "config/interlock/mcp.json").read_text())["mcpServers"]

    assert written["slow"]["timeout"] == "3600.0s"
    assert "mcpServers.odd.timeout needs a unit, as some programs count ms" in ran.out
    assert f"correct the servers of cursor in {home / '.cursor/mcp.json'}, or add" in ran.err
    assert "of gemini" not in ran.err.partition("added")[0]


def test_a_file_without_servers_causes_no_warning(interlock, home):
    for text in ('{"projects": null}', '{"mcpServers": null}', '{"projects": {"/": 5}}', "{}"):
        (home / ".claude.json").write_text(text)
        ran = interlock("servers", "import", "claude")

        assert (ran.code, ran.out, ran.err) == (0, "", "no servers of other programs were found\n")


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
    ran = interlock("servers", "import", "--only", "tme", "--yes")

    assert ran.code == 1
    assert "no program on this machine has a server 'tme'" in ran.err
