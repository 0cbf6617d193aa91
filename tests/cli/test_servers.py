"""`interlock servers`: edit, try and trust."""

import json
from pathlib import Path

import pytest

from interlock import config
from interlock.cli import servers as servers_module
from interlock.config import trust

SECRET = "s3cr3t-value"


def own_file(home: Path) -> Path:
    return home / "config" / "interlock" / "mcp.json"


# add and remove


def test_add_writes_the_persons_own_file(interlock, home):
    ran = interlock("servers", "add", "time", "mcp-server-time", "--local-timezone", "UTC")

    assert (ran.code, ran.out) == (0, "")
    assert json.loads(own_file(home).read_text()) == {
        "mcpServers": {"time": {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"]}}
    }


def test_add_takes_variables_and_a_folder_from_anywhere_before_two_dashes(interlock, home):
    words = ["--env", "A=1", "x", "run", "-y", "--env", "B=${B}", "--cwd", "/", "--", "--env", "C"]
    interlock("servers", "add", *words)

    assert json.loads(own_file(home).read_text())["mcpServers"]["x"] == {
        "command": "run",
        "args": ["-y", "--env", "C"],
        "env": {"A": "1", "B": "${B}"},
        "cwd": "/",
    }


def test_add_edits_the_file_that_is_named(interlock, home, monkeypatch):
    interlock("servers", "add", "a", "run", "--config", home / "one.json")
    monkeypatch.setenv("INTERLOCK_MCP_CONFIG", str(home / "two.json"))
    interlock("servers", "add", "b", "run")

    assert list(config.load(home / "one.json").servers) == ["a"]
    assert list(config.load(home / "two.json").servers) == ["b"]
    assert not own_file(home).exists()


def test_add_takes_a_url_and_says_that_it_cannot_be_reached_yet(interlock, home):
    ran = interlock("servers", "add", "web", "https://host.example/mcp")

    assert ran.code == 0
    assert "cannot be reached by this version" in ran.err
    assert config.load(own_file(home)).servers["web"] == config.HttpServer(
        url="https://host.example/mcp"
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["e", "run"], 1, "already has a server 'e': remove it first"),
        (["x", "run", "--env", SECRET], 2, "--env takes NAME=VALUE"),
        (["x", "https://host.example/", "--cwd", "/"], 2, "has no arguments"),
        (["x:y", "run"], 1, "x:y"),
    ],
)
def test_add_refuses_what_it_cannot_write(
    interlock, servers, words: list[str], code: int, message: str
):
    before = servers().read_bytes()
    ran = interlock("servers", "add", *words)

    assert ran.code == code
    assert message in ran.err
    assert SECRET not in ran.err
    assert servers().read_bytes() == before


def test_remove_takes_client_away(interlock, servers):
    path = servers(other={"command": "run"})

    assert interlock("servers", "remove", "e").code == 0
    assert list(config.load(path).servers) == ["other"]
    assert "has no server 'e'" in interlock("servers", "remove", "e").err


# list


def test_list_shows_commands_and_no_values(interlock, servers):
    servers(
        s={
            "command": "run",
            "args": ["-x", f"db://me:{SECRET}@host/x"],
            "env": {"TOKEN": SECRET},
            "enabled": False,
        },
        h={"url": f"https://host.example/mcp?key={SECRET}", "headers": {"X-Key": SECRET}},
    )
    table, data = interlock("servers", "list"), interlock("servers", "list", "--json")

    assert "s  disabled  run -x db://…@host/x" in table.out
    assert "TOKEN=…" in table.out
    assert "https://host.example/mcp" in table.out
    assert SECRET not in table.out + table.err + data.out + data.err
    assert data.json["servers"][1]["env"] == ["TOKEN"]


# check


def test_check_tells_state_revision_time_and_tools(interlock, servers):
    echo = json.loads(servers().read_text())["mcpServers"]["e"]
    servers(old={**echo, "args": [*echo["args"], "revision=2025-03-26"]})
    ran = interlock("servers", "check", "--json")
    new, old = ran.json["servers"]

    assert ran.code == 0
    assert (new["revision"], old["revision"]) == ("2026-07-28", "2025-03-26")
    assert new["start_seconds"] > 0
    assert new["tools"] == 6
    assert "echo 1.0" in interlock("servers", "check").out


def test_check_fails_with_the_reason_if_a_server_does(interlock, servers):
    servers(broken={"command": "no-such-program"}, off={"command": "x", "enabled": False})
    ran = interlock("servers", "check")

    assert ran.code == 1
    assert "warning: server 'broken' failed: cannot start 'no-such-program'" in ran.err
    assert interlock("servers", "check", "e").code == 0
    assert interlock("servers", "check", "off").code == 0


def test_check_of_an_unknown_server_is_an_error(interlock, servers):
    servers()

    assert "has no server 'x': e" in interlock("servers", "check", "x").err


# trust


@pytest.fixture
def project(home: Path) -> Path:
    path = home / ".mcp.json"
    entry = {"command": "run", "args": ["a b"], "env": {"NODE_OPTIONS": "--require evil\x1b[2J"}}
    path.write_text(json.dumps({"mcpServers": {"p": entry}}))
    return path


def test_trust_shows_what_would_be_started(interlock, project):
    ran = interlock("servers", "trust", "--yes")

    assert "p: NODE_OPTIONS='--require evil\\x1b[2J' run 'a b'" in ran.err
    assert trust.is_trusted(project)
    assert "trusted already" in interlock("servers", "trust").err


def test_trust_asks_a_person(interlock, project, monkeypatch):
    monkeypatch.setattr(servers_module, "is_terminal", lambda _: True)
    refused = interlock("servers", "trust", stdin=b"n\n")

    assert refused.code == 130
    assert not trust.is_trusted(project)
    assert interlock("servers", "trust", stdin=b"y\n").code == 0
    assert trust.is_trusted(project)


def test_trust_needs_somebody_to_ask(interlock, project):
    ran = interlock("servers", "trust")

    assert ran.code == 2
    assert "add --yes" in ran.err
    assert not trust.is_trusted(project)


def test_trust_without_a_file_is_an_error(interlock):
    assert interlock("servers", "trust").err == "error: there is no .mcp.json in this folder\n"


def test_trust_of_a_wrong_file_is_an_error(interlock, project):
    project.write_text('{"mcpServers": 5}')

    assert interlock("servers", "trust", "--yes").code == 1
    assert not trust.is_trusted(project)
