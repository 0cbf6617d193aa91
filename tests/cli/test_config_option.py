from pathlib import Path
from typing import Any

import pytest

from interlock.cli import config_option
from interlock.config import Config, HttpServer, StdioServer
from interlock.errors import ConfigError
from tests.support.rows import each_row

PLAIN, RENAMED = StdioServer(command="a"), StdioServer(command="b", namespace="n")
ADD = "; add it with `interlock servers add x COMMAND|URL`"
CONFIG = Config(Path("mcp.json"), {"e": PLAIN, "f": RENAMED})


@each_row(("name", "found"), [("e", ("e", PLAIN)), ("n", ("f", RENAMED)), ("f", ("f", RENAMED))])
def test_find_accepts_the_namespace_and_the_name_in_the_file(name: str, found: object):
    assert config_option.find(CONFIG, name) == found


@each_row(
    ("config", "name", "message"),
    [
        (CONFIG, "ee", "no server 'ee' in mcp.json; did you mean e?"),
        (CONFIG, "x", "no server 'x' in mcp.json; the servers are e, n" + ADD),
        (Config(), "x", "no server 'x' in the configuration; it has none" + ADD),
    ],
)
def test_find_of_an_unknown_server_is_an_error_with_a_hint(config: Config, name: str, message: str):
    with pytest.raises(ConfigError) as caught:
        config_option.find(config, name)

    assert str(caught.value) == message


def test_own_file_is_the_named_one_then_the_variable_then_the_default(
    home: Path, monkeypatch: pytest.MonkeyPatch
):
    assert config_option.own_file(None) == home / "config" / "interlock" / "mcp.json"
    monkeypatch.setenv("INTERLOCK_MCP_CONFIG", "~/two.json")
    assert config_option.own_file(None) == home / "two.json"
    assert config_option.own_file(Path("one.json")) == Path("one.json")


def test_servers_of_the_environment_replace_the_user_s_file_unless_a_file_is_named(
    home: Path, servers: Any, monkeypatch: pytest.MonkeyPatch
):
    own = servers()
    monkeypatch.setenv("MCP_ENABLED", "true")
    monkeypatch.setenv("MCP_SERVERS", '[{"name": "kb", "url": "https://kb.example/mcp"}]')
    found = config_option.load(None)

    assert (found.variable, list(found.servers)) == ("MCP_SERVERS", ["kb"])
    assert list(config_option.load(own).servers) == ["e"]
    monkeypatch.setenv("INTERLOCK_MCP_CONFIG", str(own))
    assert list(config_option.load(None).servers) == ["e"]


@pytest.mark.parametrize(
    "variables",
    [{"MCP_SERVERS": '[{"name": "kb", "url": "https://kb.example/mcp"}]'}, {"MCP_ENABLED": "true"}],
)
def test_user_s_file_is_used_while_the_environment_names_no_enabled_servers(
    servers: Any, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    servers()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert list(config_option.load(None).servers) == ["e"]


def test_limits_from_the_environment_apply_to_each_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MCP_ENABLED", "1")
    monkeypatch.setenv("MCP_SERVERS", '[{"name": "kb", "url": "https://kb.example/mcp"}]')
    monkeypatch.setenv("MCP_TOOL_EXECUTION_TIMEOUT", "7")
    monkeypatch.setenv("MCP_DISCOVERY_CACHE_TTL", "60")
    server = config_option.load(None).servers["kb"]

    assert isinstance(server, HttpServer)
    assert (server.call_timeout, server.list_ttl) == (7.0, 60.0)
