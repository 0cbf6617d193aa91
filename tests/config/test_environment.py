"""Servers from environment variables."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.config import HttpServer, StdioServer
from interlock.config.environment import EnvironmentSettings, read
from interlock.errors import ConfigError, RequestTimeout
from interlock.toolbox import Toolbox
from interlock.toolbox import toolbox as toolbox_module
from tests.support.rows import each_row
from tests.support.scripted_server import MODERN, Json, ScriptedServer, tool

CANARY = "canary-9"
KB = {"name": "kb", "url": "https://kb.example/mcp", "auth_token": CANARY}


def settings(servers: Any = None, **variables: str) -> EnvironmentSettings:
    given = {} if servers is None else {"MCP_SERVERS": json.dumps(servers)}
    return read({"MCP_ENABLED": "true", **given, **variables})


def refused(servers: Any = None, **variables: str) -> str:
    with pytest.raises(ConfigError) as raised:
        settings(servers, **variables)
    assert CANARY not in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value)


# MCP_ENABLED


@each_row("word", ["true", "1", "YES", " on "])
def test_servers_are_used_if_they_are_enabled(word: str) -> None:
    assert list(settings([KB], MCP_ENABLED=word).servers) == ["kb"]


@each_row("word", ["false", "0", "No", "off", ""])
def test_servers_are_not_used_unless_they_are_enabled(word: str) -> None:
    found = settings([KB], MCP_ENABLED=word)

    assert found.servers == {}
    assert found.warnings == ("MCP_SERVERS is set and not used: set MCP_ENABLED=true to use it",)
    assert read({}) == EnvironmentSettings()


def test_invalid_value_of_mcp_enabled_is_refused() -> None:
    assert "MCP_ENABLED must be one of" in refused(MCP_ENABLED="perhaps")


# MCP_SERVERS


def test_an_entry_with_a_url_gets_its_defaults_and_the_token_as_a_header() -> None:
    server = settings([KB]).servers["kb"]

    assert isinstance(server, HttpServer)
    assert server.headers == {"Authorization": f"Bearer {CANARY}"}
    assert server.timeout == 30.0
    assert server.enabled
    assert CANARY not in repr(server)


def test_entry_with_a_command_is_a_stdio_server() -> None:
    entry = {"name": "git", "command": "uvx", "args": ["x"], "env": {"A": "b"}, "enabled": False}
    server = settings([entry]).servers["git"]

    assert isinstance(server, StdioServer)
    assert (server.args, server.env, server.enabled) == (("x",), {"A": "b"}, False)


def test_the_namespace_replaces_the_name() -> None:
    assert list(settings([KB | {"namespace": "docs"}]).servers) == ["docs"]


@each_row("wrapped", [True, False])
def test_an_object_of_servers_is_accepted(wrapped: bool) -> None:
    servers: Json = {"kb": {"url": "https://kb.example/mcp"}}

    found = settings({"mcpServers": servers} if wrapped else servers)

    assert list(found.servers) == ["kb"]


@each_row(
    ("servers", "message"),
    [
        ([KB, 3], "MCP_SERVERS[1] must be an object, not"),
        ([{"url": "https://x"}], 'MCP_SERVERS[0] needs a "name"'),
        ([{"name": "kb"}], 'MCP_SERVERS[0] needs a "command" to run, a "url" to connect to'),
        ([KB, {"name": "b", "url": None}], 'MCP_SERVERS[1] needs a "command" to run, a "url"'),
        ({"kb": {"headers": {}}}, 'MCP_SERVERS: mcpServers.kb needs a "command" to run'),
        ([KB | {"url": "ftp://x"}], "MCP_SERVERS[0].url must start with https:// or http://"),
        ([KB | {"timeout": -1}], "MCP_SERVERS[0].timeout must be more than 0"),
        ([KB | {"name": "a:b"}], "MCP_SERVERS[0].namespace must be a name without colon"),
        ([KB | {"auth_token": f"{CANARY}\r\nX: 1"}], "MCP_SERVERS[0].auth_token must be a token"),
        ([KB | {"auth_token": f"{CANARY} x"}], "MCP_SERVERS[0].auth_token must be a token"),
        ([KB, KB | {"name": "b", "namespace": "kb"}], "MCP_SERVERS[1] has the same name"),
        ([{"name": "a", "command": "x", "auth_token": CANARY}], "is for servers with a URL"),
        ("kb", "MCP_SERVERS must be a list of servers, not"),
    ],
)
def test_invalid_entry_refuses_the_whole_document_with_its_place(
    servers: Any, message: str
) -> None:
    assert message in refused(servers)


def test_text_that_is_not_json_is_refused_without_showing_it() -> None:
    assert "MCP_SERVERS is not JSON" in refused(MCP_SERVERS=f"[{CANARY}")


def test_an_unknown_key_is_warned_about() -> None:
    assert settings([KB | {"tiemout": 3}]).warnings == (
        "MCP_SERVERS[0].tiemout is unknown and ignored (did you mean 'timeout'?)",
    )


@each_row(
    ("url", "warnings"),
    [("http://kb.example/mcp", 1), ("http://127.0.0.1:1/mcp", 0), ("https://kb.example/mcp", 0)],
)
def test_a_token_over_plain_http_is_warned_about(url: str, warnings: int) -> None:
    assert len(settings([KB | {"url": url}]).warnings) == warnings


def test_file_is_read_into_its_servers(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps([KB]))

    assert list(settings(MCP_SERVERS_FILE=str(file)).servers) == ["kb"]
    assert "are both set" in refused([KB], MCP_SERVERS_FILE=str(file))
    assert "does not exist" in refused(MCP_SERVERS_FILE=str(tmp_path / "none"))


# Times


def test_times_have_the_defaults_of_the_documentation() -> None:
    assert (settings().list_ttl, settings().call_timeout) == (3_600.0, 30.0)
    assert settings(MCP_DISCOVERY_CACHE_TTL="0").list_ttl == 0.0
    assert settings(MCP_TOOL_EXECUTION_TIMEOUT="2.5").call_timeout == 2.5


@each_row("text", ["x", "-1", "nan", "inf", "1e9"])
def test_a_wrong_time_is_refused(text: str) -> None:
    assert "MCP_DISCOVERY_CACHE_TTL" in refused(MCP_DISCOVERY_CACHE_TTL=text)
    assert "MCP_TOOL_EXECUTION_TIMEOUT" in refused(MCP_TOOL_EXECUTION_TIMEOUT=text)


# The toolbox

ECHO = Path(__file__).parents[1] / "servers" / "echo.py"


def program(name: str, *told: str) -> Json:
    return {"name": name, "command": sys.executable, "args": ["-I", "-S", str(ECHO), *told]}


def environ(*servers: Json, **variables: str) -> dict[str, str]:
    return {"MCP_ENABLED": "1", "MCP_SERVERS": json.dumps(servers), **variables}


@pytest.mark.slow("starts a program")
async def test_a_toolbox_is_made_from_the_variables_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_SERVERS", "not read")
    caplog.set_level(logging.DEBUG)
    down = {"name": "down", "command": "/does/not/exist", "env": {"TOKEN": CANARY}}
    async with Toolbox.from_environ(environ(program("echo"), down)) as toolbox:
        assert (await toolbox.call("echo:say", {"text": "hi"})).text == "hi"
        assert toolbox.status["down"].state == "failed"

    assert CANARY not in caplog.text
    assert Toolbox.from_environ({}).tools == []


@pytest.mark.slow("starts a program")
async def test_a_call_has_a_limit_even_if_it_reports_progress() -> None:
    variables = environ(program("echo"), MCP_TOOL_EXECUTION_TIMEOUT="0.2")
    async with Toolbox.from_environ(variables) as toolbox:
        with pytest.raises(RequestTimeout):
            await toolbox.call("echo:wait", progress=lambda _: None)


@pytest.mark.slow("starts a program")
async def test_a_server_that_is_down_comes_back_without_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolbox_module, "RETRY_INTERVAL", 0.01)
    late = tmp_path / "late.py"
    server = {"name": "late", "command": sys.executable, "args": ["-I", "-S", str(late)]}
    async with Toolbox.from_environ(environ(server)) as toolbox:
        assert toolbox.tools == []
        late.write_bytes(ECHO.read_bytes())
        while not toolbox.tools:
            await _changed(toolbox)

        assert toolbox.status["late"].state == "ok"


async def _changed(toolbox: Toolbox) -> None:
    import asyncio

    changed = asyncio.Event()
    toolbox.listeners.add(changed.set)
    await changed.wait()


@each_row(("ttl", "lists"), [(0.0, 2), (3_600.0, 1)])
async def test_list_is_kept_no_longer_than_its_ttl_although_the_server_allows_it(
    ttl: float, lists: int
) -> None:
    listing = {"tools": [tool("x")], "ttlMs": 1_000_000, "cacheScope": "private"}
    server = ScriptedServer(MODERN, {"tools/list": listing})
    server.list_ttl = ttl  # type: ignore[attr-defined]  # as servers of MCP_SERVERS have it
    async with Toolbox({"s": server}) as toolbox:
        await toolbox.refresh()

    assert len(server.sent("tools/list")) == lists
