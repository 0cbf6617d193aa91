from pathlib import Path

import pytest

from interlock.cli import config_option
from interlock.config import Config, StdioServer
from interlock.errors import ConfigError

PLAIN, RENAMED = StdioServer(command="a"), StdioServer(command="b", namespace="n")
CONFIG = Config(Path("mcp.json"), {"e": PLAIN, "f": RENAMED})


@pytest.mark.parametrize(
    ("name", "found"), [("e", ("e", PLAIN)), ("n", ("f", RENAMED)), ("f", ("f", RENAMED))]
)
def test_find_accepts_the_namespace_and_the_name_in_the_file(name: str, found: object):
    assert config_option.find(CONFIG, name) == found


@pytest.mark.parametrize(
    ("config", "name", "message"),
    [
        (CONFIG, "ee", "no server 'ee' in mcp.json; did you mean e?"),
        (CONFIG, "x", "no server 'x' in mcp.json; the servers are e, n"),
        (Config(), "x", "no server 'x' in the configuration; it has none"),
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
