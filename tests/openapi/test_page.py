"""docs/use/http-apis.md: its commands print what it shows, and its configuration is accepted."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.config import OpenApiConfig, loads

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "use" / "http-apis.md").read_text()
_SESSION = re.compile(r"```text\n(\$ .*?)```", re.DOTALL)
_COMMAND = re.compile(r"^\$ interlock (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def block(name: str) -> str:
    match = re.search(rf"<!-- {re.escape(name)} -->\n```json\n(.*?)```", PAGE, re.DOTALL)
    assert match
    return match[1]


@pytest.mark.slow("starts the command six times")
def test_each_command_on_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environ = {**os.environ, "SHOP_API_KEY": "canary-of-the-shop", "HOME": str(tmp_path)}
    environ |= {f"XDG_{name}_HOME": str(tmp_path) for name in ("CONFIG", "DATA", "CACHE")}
    commands = [each for session in _SESSION.findall(PAGE) for each in _COMMAND.findall(session)]
    assert len(commands) >= 5
    for command, shown in commands:
        words = command.split()
        target = words[words.index(">") + 1] if ">" in words else ""
        ran = subprocess.run(
            [Path(sys.executable).with_name("interlock"), *words[: len(words) - 2 * bool(target)]],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        if target:
            proposed = json.loads(ran.stdout)["mcpServers"]["shop"]["openapi"]
            wanted = json.loads(block(target))["mcpServers"]["shop"]["openapi"]
            assert wanted.pop("tools") == {**proposed.pop("tools"), "add_order": "addOrder"}
            assert proposed == wanted
            (tmp_path / target).write_text(block(target))
        else:
            assert ran.stdout == shown


def test_the_tool_on_the_page_is_accepted() -> None:
    config = json.loads(block("mcp.json"))
    config["mcpServers"]["shop"]["openapi"]["tools"]["list_orders"] = json.loads(block("tool"))
    loaded = loads(json.dumps(config).encode())
    server = loaded.servers["shop"]

    assert not loaded.warnings
    assert isinstance(server, OpenApiConfig)
    assert server.tools.risk.of("list_orders") == "read"
