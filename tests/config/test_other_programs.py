"""Files of other programs are read as they are, without a warning at every command."""

from __future__ import annotations

import json
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
    config = read({member: " https://mcp.example/mcp\n"})

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


@each_row(
    ("type", "read_as"),
    [
        *((word, "http") for word in ("http", "HTTP", "streamable", "streamable_http", "remote")),
        *((word, "http") for word in ("streamable-http", "streamableHttp", "Streamable HTTP")),
        *((word, "sse") for word in ("sse", "SSE", "http+sse")),
    ],
)
def test_a_type_may_be_written_in_any_of_its_usual_forms(type: str, read_as: str):
    url = "https://mcp.example/mcp"
    forms: list[dict[str, Any]] = [
        {"type": type, "url": url},
        {"transport": type, "url": url},
        {"transportType": type, "url": url},
        {"transport": {"type": type, "url": url, "headers": None}, "env": None},
    ]
    for form in forms:
        config = read(form)

        assert config.warnings == () or "env" in form
        assert config.servers["s"] == HttpServer(url=url, type=read_as)  # type: ignore[arg-type]


@each_row(
    ("entry", "problem"),
    [
        ({"type": "ws", "url": "https://h"}, "has the type 'ws'"),
        ({"type": "http", "transport": "sse", "url": "https://h"}, 'has "type" and another'),
        ({"url": "https://h", "transport": {"url": "https://i"}}, 'another "transport.url"'),
        ({"url": "https://h", "serverUrl": "https://i"}, 'has "url" and another "serverUrl"'),
        ({"type": "local", "url": "https://h"}, ".type must be one of http, sse"),
        ({"command": []}, ".command must be a string, not a list"),
        ({"command": ["x", 5, None]}, ".args[1] must be a string, not null"),
        ({"enabled": True, "isActive": False, "command": "x"}, 'another "isActive"'),
    ],
)
def test_an_entry_with_two_meanings_is_refused(entry: dict[str, Any], problem: str):
    assert problem in read(entry).ignored["s"]


STDIO = StdioServer(command="npx", args=("-y", "x"), env={"N": "5", "ON": "true"})
ENTRY: dict[str, Any] = {"command": "npx", "args": ["-y", "x"], "env": {"N": "5", "ON": "true"}}


@each_row(
    ("root", "entry"),
    [
        ("mcpServers", {**ENTRY, "type": "Stdio", "env": {"N": 5, "ON": True}}),
        ("mcpServers", {**ENTRY, "_remark": 1, "//": "x", "cwd": None, "tools": None}),
        ("mcpServers", {"command": ["npx", "-y", "x"], "environment": ENTRY["env"]}),
        ("mcp", {"type": "local", "command": ["npx", "-y", "x"], "environment": ENTRY["env"]}),
        ("context_servers", {"command": {"path": "npx", "args": ["-y", "x"], "env": ENTRY["env"]}}),
        ("mcp_servers", {**ENTRY, "enabled": True}),
        ("amp.mcpServers", ENTRY),
        ("servers", ENTRY),
    ],
)
def test_a_program_is_read_in_the_forms_of_other_programs(root: str, entry: dict[str, Any]):
    """https://opencode.ai/docs/mcp-servers, https://zed.dev/docs/ai/mcp, Codex's config.toml"""
    config = read(entry, root)

    assert (config.servers, config.warnings) == ({"s": STDIO}, ())


def test_servers_may_be_a_list_with_names_or_in_a_nested_object():
    """https://docs.continue.dev/customize/deep-dives/mcp and settings.json of VS Code"""
    for text in (
        {"mcpServers": [{"name": "s", **ENTRY}]},
        {"mcp": {"servers": {"s": ENTRY}}},
        {"mcp": "x", "mcpServers": {"s": ENTRY}},
    ):
        config = loads(json.dumps(text).encode())
        assert (config.servers, config.ignored) == ({"s": STDIO}, {})

    config = loads(json.dumps({"mcpServers": [{"name": "s", **ENTRY}, ENTRY, None]}).encode())
    assert config.servers["s"] == STDIO
    assert "must be an object, not null" in config.ignored["[2]"]


def test_credentials_named_by_their_variables_are_read():
    """https://developers.openai.com/codex/mcp"""
    remote = {
        "url": "https://mcp.example/mcp",
        "bearer_token_env_var": "TOKEN",
        "http_headers": {"X-A": "a"},
        "env_http_headers": {"X-B": "B"},
    }
    headers = {"X-A": "a", "X-B": "${B}", "Authorization": "Bearer ${TOKEN}"}
    assert read(remote).servers["s"] == HttpServer(url=remote["url"], headers=headers)

    program = {"command": "x", "env_vars": ["HOME", "KEY"], "env": {"KEY": "k"}}
    assert read(program).servers["s"] == StdioServer(
        command="x", env={"HOME": "${HOME:-}", "KEY": "k"}
    )


def test_an_entry_that_only_disables_a_server_of_another_file_causes_no_warning():
    """https://opencode.ai/docs/mcp-servers"""
    config = read({"enabled": False})

    assert (config.servers, config.ignored, config.warnings) == ({}, {}, ())
    assert read({"enabled": True}).ignored["s"]


def test_an_empty_object_of_servers_beside_the_one_in_use_is_ignored():
    config = loads(b'{"servers": {"s": {"command": "x"}}, "mcpServers": {}}')

    assert (list(config.servers), config.warnings) == (["s"], ())


def test_a_list_of_tools_allows_only_these():
    server = read({"command": "x", "tools": ["a", "b_*"]}).servers["s"]

    assert server.tools.allow == ("a", "b_*")
    assert "tools.allow[0] must be a string" in read({"command": "x", "tools": [5]}).ignored["s"]


@each_row(
    ("file", "timeout", "seconds"),
    [
        (".mcp.json", 5_000, 5.0),
        (".claude.json", 5_000, 5.0),
        (".gemini/settings.json", 600_000, 600.0),
        ("opencode.jsonc", 5_000, 5.0),
        (".copilot/mcp-config.json", 30_000, 30.0),
        (".aws/amazonq/mcp.json", 120_000, 120.0),
        ("cline_mcp_settings.json", 3_600, 3_600.0),
        (".roo/mcp.json", 3_600, 3_600.0),
        (".mcp.json", 60, 60.0),
        ("mcp.json", 60, 60.0),
        ("mcp.json", 5_000, None),
        ("claude_desktop_config.json", 60_000, None),
        ("mcp.json", "5000ms", 5.0),
        ("mcp.json", "5000s", 5_000.0),
    ],
)
def test_the_unit_of_a_timeout_is_that_of_the_program(
    file: str, timeout: float | str, seconds: float | None
):
    """https://code.claude.com/docs/en/mcp, https://geminicli.com/docs/tools/mcp-server"""
    text = json.dumps({"mcpServers": {"s": {"command": "x", "timeout": timeout}}}).encode()

    config = loads(text, Path(file))

    if seconds is None:
        assert 'needs a unit, as some programs count ms: write "' in config.ignored["s"]
    else:
        assert config.servers["s"].timeout == seconds


@each_row(
    ("file", "text", "value"),
    [
        ("opencode.json", "Bearer {env:KEY}", "Bearer k"),
        ("mcp.json", "{env:KEY}", "k"),
        (".gemini/settings.json", "a $KEY b", "a k b"),
        (".gemini/settings.json", "$UNSET and $5", "$UNSET and $5"),
        ("mcp.json", "$KEY", "$KEY"),
        ("mcp.json", "{KEY} {file:x}", "{KEY} {file:x}"),
        ("opencode.json", "{file:~/key}", None),
    ],
)
def test_references_to_variables_of_other_programs_are_filled_in(
    file: str, text: str, value: str | None
):
    """https://opencode.ai/docs/config, https://geminicli.com/docs/reference/configuration"""
    entry = {"command": "x", "args": [text], "env": {"A": text}}
    config = loads(json.dumps({"mcpServers": {"s": entry}}).encode(), Path(file))

    if value is None:
        assert "has {file:…}, which is not read" in config.ignored["s"]
        return
    server = resolve(config.servers["s"], {"KEY": "k"})
    assert isinstance(server, StdioServer)
    assert (server.args, server.env) == ((value,), {"A": value})


@each_row(
    ("empty", "entry"),
    [
        ({"env": [], "cwd": "", "url": "", "type": ""}, {"command": "x"}),
        ({"headers": [], "command": ""}, {"url": "https://mcp.example/mcp"}),
    ],
)
def test_empty_members_from_the_form_of_a_program_count_as_missing(
    empty: dict[str, Any], entry: dict[str, Any]
):
    assert read({**entry, **empty}).servers == read(entry).servers
    assert "must be an object" in read({**entry, "env": ["A=b"], "headers": ["A: b"]}).ignored["s"]


def test_lists_of_tools_and_milliseconds_of_gemini_are_understood():
    server = read({"command": "x", "includeTools": ["a"], "excludeTools": ["b"], "timeout": 5000})

    found = server.servers["s"]
    assert (found.tools.allow, found.tools.deny, found.timeout) == (("a",), ("b",), 5.0)


def test_tools_that_any_of_the_lists_denies_are_denied():
    lists = {"excludeTools": ["a"], "disabledTools": ["b"], "tools": {"deny": ["c"]}}

    assert read({"command": "x", **lists}).servers["s"].tools.deny == ("c", "a", "b")
    wrong = read({"command": "x", "tools": {"deny": ["c"]}, "disabledTools": "b"})
    assert "tools.deny must be a list of strings" in wrong.ignored["s"]


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
