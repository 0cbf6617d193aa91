"""`interlock servers add` and `remove`."""

import json
from pathlib import Path

import pytest

from interlock import config
from tests.support.rows import each_row

SECRET = "s3cr3t-value"


def own_file(home: Path) -> Path:
    return home / "config" / "interlock" / "mcp.json"


def test_add_writes_the_users_own_file(interlock, home):
    ran = interlock("servers", "add", "time", "mcp-server-time", "--local-timezone", "UTC")

    assert (ran.code, ran.out) == (0, "")
    assert json.loads(own_file(home).read_text()) == {
        "mcpServers": {"time": {"command": "mcp-server-time", "args": ["--local-timezone", "UTC"]}}
    }


def test_add_accepts_its_options_anywhere_before_two_dashes(interlock, home):
    words = ["--env", "A=1", "x", "run", "-y", "--env", "B=${B}", "--cwd", "/", "--", "--env", "C"]
    interlock("servers", "add", *words)

    assert json.loads(own_file(home).read_text())["mcpServers"]["x"] == {
        "command": "run",
        "args": ["-y", "--env", "C"],
        "env": {"A": "1", "B": "${B}"},
        "cwd": "/",
    }


def test_add_warns_of_a_relative_file_with_the_absolute_path(interlock, home):
    (home / "math.py").touch()
    words = ("interlock", "run", "math.py")
    warning = (
        "warning: {0} is relative, so the server starts only in this folder; "
        f"write {home}/{{0}}, or add --cwd"
    )

    plain = interlock("servers", "add", "a", *words).err.splitlines()
    named = interlock("servers", "add", "b", *words[:2], "math.py:server").err.splitlines()
    absolute = interlock("servers", "add", "c", *words[:2], home / "math.py").err.splitlines()
    with_cwd = interlock("servers", "add", "d", *words, "--cwd", home).err.splitlines()

    assert plain[:-1] == [warning.format("math.py")]
    assert named[:-1] == [warning.format("math.py:server")]
    assert (len(absolute), len(with_cwd)) == (1, 1)


def test_add_with_config_edits_that_file(interlock, home, monkeypatch):
    ran = interlock("servers", "add", "a", "run", "--config", home / "one.json")
    assert ran.err.endswith(
        f"; try it with: interlock servers check a --config {home / 'one.json'}\n"
    )
    monkeypatch.setenv("INTERLOCK_MCP_CONFIG", str(home / "two.json"))
    interlock("servers", "add", "b", "run")

    assert list(config.load(home / "one.json").servers) == ["a"]
    assert list(config.load(home / "two.json").servers) == ["b"]
    assert not own_file(home).exists()


def test_add_refuses_a_file_without_mcp_servers(interlock, home):
    settings = home / "settings.json"
    settings.write_text('{"colour": "blue"}')
    ran = interlock("servers", "add", "a", "run", "--config", settings)

    assert ran.code == 1
    assert f'{settings} has no mcpServers: add "mcpServers": {{}} to it' in ran.err
    assert settings.read_text() == '{"colour": "blue"}'


def test_add_of_a_url_prints_the_check_command(interlock, home):
    ran = interlock("servers", "add", "my web", "https://host.example/mcp")

    assert (ran.code, ran.out) == (0, "")
    assert ran.err.endswith("; try it with: interlock servers check 'my web'\n")
    entries = json.loads(own_file(home).read_text())["mcpServers"]
    assert entries == {"my web": {"type": "http", "url": "https://host.example/mcp"}}


def test_add_accepts_a_url_scheme_in_any_case(interlock, home):
    assert interlock("servers", "add", "web", "HTTPS://host.example/Mcp").code == 0

    web = config.load(own_file(home)).servers["web"]
    assert web.url == "https://host.example/Mcp"


def test_add_writes_headers_transport_and_auth(interlock, home, monkeypatch):
    monkeypatch.setenv("SET", SECRET)
    headers = ["--header", "X-Key:${KEY}", "--header", "X-Other: a: ${SET}"]
    ran = interlock(
        "servers", "add", "web", "https://h/mcp", *headers, "--type", "sse", "--auth", "none"
    )

    assert config.load(own_file(home)).servers["web"] == config.HttpServer(
        url="https://h/mcp",
        headers={"X-Key": "${KEY}", "X-Other": "a: ${SET}"},
        type="sse",
        auth="none",
    )
    assert ran.err.endswith("; set KEY, then try it with: interlock servers check web\n")
    assert SECRET not in own_file(home).read_text() + ran.err


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("notes", "NOTES_TOKEN"),
        ("My notes-2", "MY_NOTES_2_TOKEN"),
        ("7th", "_7TH_TOKEN"),
        ("日本", "___TOKEN"),
    ],
)
def test_add_with_auth_bearer_writes_a_variable_for_the_token(
    interlock, home, monkeypatch, name: str, variable: str
):
    ran = interlock("servers", "add", name, "https://h/mcp", "--auth", "bearer")
    server = config.load(own_file(home)).servers[name]

    assert server.headers == {"Authorization": f"Bearer ${{{variable}}}"}
    assert server.auth == "bearer"
    assert f"; set {variable}, then try it with: " in ran.err
    resolved = config.resolve(server, {variable: SECRET})
    assert resolved.headers == {"Authorization": f"Bearer {SECRET}"}


def test_add_with_auth_bearer_keeps_a_given_header(interlock, home):
    header = "authorization: Bearer ${OTHER}"
    ran = interlock(
        "servers", "add", "web", "https://h/mcp", "--auth", "bearer", "--header", header
    )

    assert config.load(own_file(home)).servers["web"].headers == {
        "authorization": "Bearer ${OTHER}"
    }
    assert "set OTHER, then" in ran.err


def test_add_writes_a_registered_oauth_client(interlock, home):
    client = ["--client-id", "me", "--client-secret", "${MINE}", "--callback-port", "8765"]
    ran = interlock("servers", "add", "web", "https://h/mcp", "--auth", "oauth", *client)

    assert config.load(own_file(home)).servers["web"] == config.HttpServer(
        url="https://h/mcp",
        auth="oauth",
        oauth=config.OAuthClient(client_id="me", client_secret="${MINE}", callback_port=8765),
    )
    assert "; set MINE, then log in with: interlock servers login web\n" in ran.err


def test_add_writes_the_url_of_a_client_metadata_document(interlock, home):
    document = ["--client-metadata-url", "https://me.example/client.json"]
    interlock("servers", "add", "web", "https://h/mcp", *document)

    client = config.OAuthClient(client_metadata_url="https://me.example/client.json")
    assert config.load(own_file(home)).servers["web"].oauth == client


def test_add_with_auth_oauth_prints_how_to_log_in(interlock, home):
    ran = interlock("servers", "add", "web", "https://h/mcp", "--auth", "oauth")

    assert ran.err.endswith("; log in with: interlock servers login web\n")
    assert config.load(own_file(home)).servers["web"].auth == "oauth"


@each_row(
    ("words", "code", "message"),
    [
        (["e", "run"], 1, "already has a server 'e': remove it first"),
        (
            ["x", "run", "--env", SECRET],
            2,
            "--env takes NAME=VALUE; if it is the program's own, put --",
        ),
        (["x", "https://host.example/", "--cwd", "/"], 2, "has no arguments"),
        (["x:y", "run"], 1, "x:y"),
        (["x", "https://h", "--header", SECRET], 2, "--header takes 'NAME: VALUE'"),
        (["x", "https://h", "--header", f": {SECRET}"], 2, "--header takes 'NAME: VALUE'"),
        (["x", "https://h", "--header", f"a b: {SECRET}"], 1, "not a valid name of an HTTP header"),
        (["x", "https://h", "--header", f"Host: {SECRET}"], 1, "is set by the client"),
        (["x", "https://h", "--header", f"A: {SECRET}\nB: c"], 1, "has an invalid character"),
        (
            ["x", "https://h", "--auth", "oauth", "--header", f"Authorization: {SECRET}"],
            2,
            "--auth oauth and a header Authorization exclude each other",
        ),
        (["x", f"https://me:{SECRET}@h/"], 1, "the URL of h contains a user name"),
        (["x", "https://h/#top"], 1, "the URL of h has a fragment"),
        (["x", "https://h:port/"], 1, "invalid server URL"),
        (["x", "https://h", "--auth", "basic"], 2, "'basic' is not one of"),
        (["x", "run", "--auth", "none"], 2, "need a URL"),
        (["x", "run", "--header", "A: b"], 2, "need a URL"),
        (["x", "run", "--type", "http"], 2, "put -- before COMMAND"),
        (["x", "run", "--client-id", "a"], 2, "need a URL"),
        (["x", "https://h", "--client-secret", SECRET], 2, "--client-secret needs --client-id"),
        (["x", "https://h", "--callback-port", "0"], 2, "0 is not in the range"),
        (["x", "run", "--client-metadata-url", "https://h/c"], 2, "need a URL"),
        (["x", "https://h", "--client-metadata-url", "http://h/c"], 2, "must be https://"),
        (
            ["x", "https://h", "--client-metadata-url", "https://h/c", "--client-id", "a"],
            2,
            "--client-metadata-url and --client-id exclude each other",
        ),
    ],
)
def test_add_refuses_invalid_arguments_and_leaves_the_file(
    interlock, servers, words: list[str], code: int, message: str
):
    before = servers().read_bytes()
    ran = interlock("servers", "add", *words)

    assert ran.code == code
    assert message in ran.err
    assert SECRET not in ran.err
    assert servers().read_bytes() == before


@each_row(
    ("arguments", "name"),
    [
        (["a\udce9", "run"], "NAME"),
        (["a", "run\udce9"], "COMMAND|URL"),
        (["a", "run", "x", "secret\udce9"], "[ARGS]... number 2"),
        (["a", "run", "--env", "KEY=secret\udce9"], "--env KEY=…"),
        (["a", "run", "--cwd", "/\udce9"], "--cwd"),
    ],
)
def test_add_refuses_text_that_is_not_utf8(interlock, home, arguments: list[str], name: str):
    ran = interlock("servers", "add", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error: {name} is not UTF-8: see `interlock servers add --help`\n"
    assert not own_file(home).exists()


def test_remove_deletes_the_server_from_the_file(interlock, servers):
    path = servers(other={"command": "run"})

    assert interlock("servers", "remove", "e").code == 0
    assert list(config.load(path).servers) == ["other"]
    assert "has no server 'e'" in interlock("servers", "remove", "e").err
