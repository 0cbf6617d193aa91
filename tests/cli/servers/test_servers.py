"""`interlock servers`: add, remove, list, check and trust."""

import json
import sys
from pathlib import Path

import pytest

from interlock.cli import server_status
from interlock.cli.servers import servers as servers_module
from interlock.config import trust

SECRET = "s3cr3t-value"


MUTE = {"command": "sh", "args": ["-c", "cat > /dev/null"], "connectTimeout": 60}


# add and remove


# list


def test_list_shows_commands_and_hides_values(interlock, servers):
    servers(
        s={
            "command": "run",
            "args": ["-x", f"db://me:{SECRET}@host/x", f"--token={SECRET}", "--key", "${KEY}"],
            "env": {"TOKEN": SECRET},
            "enabled": False,
        },
        h={"url": f"https://host.example/mcp?key={SECRET}", "headers": {"X-Key": SECRET}},
    )
    table, data = interlock("servers", "list"), interlock("servers", "list", "--json")

    assert "s  disabled  run -x db://…@host/x --token=*** --key ${KEY}" in table.out
    assert "TOKEN=…" in table.out
    assert "https://host.example/mcp" in table.out
    assert SECRET not in table.out + table.err + data.out + data.err
    assert data.json["servers"][1]["env"] == ["TOKEN"]


# check


@pytest.mark.slow("starts a program")
def test_python_object_is_a_server_of_every_command(interlock, servers):
    servers(notes={"type": "python", "object": "tests.toolbox.test_connect:notes"})

    assert "tests.toolbox.test_connect:notes" in interlock("servers", "list").out
    assert "notes:add" in interlock("tools", "notes").out
    assert interlock("call", "notes:add", "text=x", "--yes").out == "added x\n"
    refused = interlock("servers", "logout", "notes")
    assert (refused.code, "only a server with a URL has a login" in refused.err) == (1, True)


def test_check_prints_state_revision_time_and_tools(interlock, servers):
    echo = json.loads(servers().read_text())["mcpServers"]["e"]
    servers(old={**echo, "args": [*echo["args"], "revision=2025-03-26"]})
    ran = interlock("servers", "check", "--json")
    new, old = ran.json["servers"]

    assert ran.code == 0
    assert (new["revision"], old["revision"]) == ("2026-07-28", "2025-03-26")
    assert new["start_seconds"] > 0
    assert new["tools"] == 6
    assert "echo 1.0" in interlock("servers", "check").out


@pytest.mark.slow("starts a program")
def test_a_mute_server_does_not_delay_the_check_of_the_others(interlock, servers, monkeypatch):
    monkeypatch.setattr(server_status, "IDLE_TIMEOUT", 1.5)
    servers(mute=MUTE)
    ran = interlock("servers", "check")

    assert ran.code == 1
    assert [line.split()[:2] for line in ran.out.splitlines()] == [
        ["e", "ok"],
        ["mute", "starting"],
    ]
    assert ran.err == "still starting: server 'mute'; wait for it with: interlock tools mute\n"


@pytest.mark.slow("starts a program")
def test_check_of_a_broken_server_exits_with_1_and_the_reason(interlock, servers):
    servers(broken={"command": "no-such-program"}, off={"command": "x", "enabled": False})
    ran = interlock("servers", "check")

    assert ran.code == 1
    assert "warning: server 'broken' failed: cannot start 'no-such-program'" in ran.err
    assert interlock("servers", "check", "e").code == 0
    assert interlock("servers", "check", "off").code == 0


@pytest.mark.slow("starts a program")
def test_check_reports_dropped_lines_on_a_servers_stdout(interlock, servers):
    echo = json.loads(servers().read_text())["mcpServers"]["e"]
    noisy = ["-c", 'echo one; echo two; exec "$@"', "sh", echo["command"], *echo["args"]]
    servers(noisy={"command": "sh", "args": noisy})
    ran, data = interlock("servers", "check"), interlock("servers", "check", "noisy", "--json")

    assert ran.code == 0
    assert ran.err == "dropped messages of server 'noisy': 2 x garbage\n"
    assert data.json["servers"][0]["dropped"] == {"garbage": 2}


def test_check_of_an_unknown_server_is_an_error(interlock, servers):
    servers()

    assert "no server 'x' in" in interlock("servers", "check", "x").err
    assert "did you mean e?" in interlock("servers", "check", "ee").err


@pytest.mark.slow("starts a program")
def test_check_accepts_the_namespace_and_the_name_in_the_file(interlock, servers):
    echo = json.loads(servers().read_text())["mcpServers"]["e"]
    servers(e={**echo, "namespace": "n"}, n={"command": "no-such-program", "namespace": "m"})

    assert interlock("servers", "check", "n").out.startswith("n  ok")
    assert interlock("servers", "check", "e").out.startswith("n  ok")
    assert interlock("servers", "check", "m").code == 1


# trust


@pytest.fixture
def project(home: Path) -> Path:
    path = home / ".mcp.json"
    arguments = ["a b", "true # note\ncurl evil"]
    variables = {"NODE_OPTIONS": "--require evil\x1b[2J"}
    entry = {"command": "run", "args": arguments, "env": variables}
    path.write_text(json.dumps({"mcpServers": {"p": entry}}))
    return path


def test_trust_shows_the_whole_command(interlock, project):
    ran = interlock("servers", "trust", "--yes")

    shown = r"p: NODE_OPTIONS='--require evil\u001b[2J' run 'a b' 'true # note\u000acurl evil'"
    assert shown in ran.err
    assert trust.is_trusted(project)
    assert "is already trusted" in interlock("servers", "trust").err


def test_trust_import_and_install_show_what_a_server_is_granted(interlock, home):
    entry = {"command": sys.executable, "alwaysAllow": ["wipe"], "envFile": ".env"}
    entry |= {"args": ["a\nb"], "env": {"LD_PRELOAD": "canary"}}
    text = json.dumps({"mcpServers": {"x": entry}})
    for file in (Path(".mcp.json"), Path(".cursor/mcp.json"), home / ".config/interlock/mcp.json"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    trusted = interlock("servers", "trust", "--yes").err
    table, imported = interlock("servers", "import", "cursor")[1:3]
    found = interlock("servers", "import", "cursor", "--json").json["servers"]
    installed = interlock("install", "claude", "x").err

    assert f"LD_PRELOAD=… {sys.executable} 'a\\u000ab'" in table
    assert "canary" not in table
    for shown in (trusted, imported, installed):
        assert "runs without asking you: wipe" in shown, shown
        assert "gets the variables of the file .env" in shown
    assert found[0]["consents"][0] == "runs without asking you: wipe"


def test_trust_shows_urls_headers_and_clients(interlock, home):
    entries = {
        "web": {
            "url": "https://h.example/mcp?key=${KEY}",
            "type": "sse",
            "headers": {"X-Key": "${AWS_SECRET}"},
        },
        "other": {
            "url": "http://h.example/mcp",
            "auth": "oauth",
            "oauth": {"clientId": "me", "clientSecret": "${PASSWORD}"},
        },
    }
    (home / ".mcp.json").write_text(json.dumps({"mcpServers": entries}))
    ran = interlock("servers", "trust", "--yes")

    url = "https://h.example/mcp?key=${KEY}"
    assert f"  web: {url} (type sse, auth auto) with X-Key: ${{AWS_SECRET}}\n" in ran.err
    client = "as client me with client secret ${PASSWORD}"
    assert f"  other: http://h.example/mcp (type http, auth oauth) {client}\n" in ran.err


def test_trust_shows_objects_of_modules(interlock, home):
    entry = {"type": "python", "object": "company.notes:server"}
    (home / ".mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))

    shown = interlock("servers", "trust", "--yes").err

    assert "notes: company.notes:server (an object of a Python module, in this program)" in shown


def test_trust_asks_on_a_terminal(interlock, project, monkeypatch):
    monkeypatch.setattr(servers_module, "is_terminal", lambda _: True)
    refused = interlock("servers", "trust", stdin=b"n\n")

    assert refused.code == 130
    assert not trust.is_trusted(project)
    assert interlock("servers", "trust", stdin=b"y\n").code == 0
    assert trust.is_trusted(project)


def test_trust_without_a_terminal_needs_yes(interlock, project):
    ran = interlock("servers", "trust")

    assert ran.code == 2
    assert "add --yes" in ran.err
    assert not trust.is_trusted(project)


def test_trust_without_a_file_is_an_error(interlock):
    assert interlock("servers", "trust").err == "error: this folder has no .mcp.json\n"


def test_trust_of_an_invalid_file_is_an_error(interlock, project):
    project.write_text('{"mcpServers": 5}')

    assert interlock("servers", "trust", "--yes").code == 1
    assert not trust.is_trusted(project)
