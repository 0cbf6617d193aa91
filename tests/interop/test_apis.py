"""Real HTTP APIs as tools, by the real command: a FastAPI program and Jupyter Server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.openapi.shop import KEY
from tests.support.served import serving

ROOT = Path(__file__).parents[2]
TOKEN = "canary-of-jupyter"
pytestmark = pytest.mark.program("FastAPI and Jupyter Server")


class World:
    """A home folder with an mcpServers file, and the real program."""

    def __init__(self, home: Path, servers: dict[str, Any]) -> None:
        self._config = home / "mcp.json"
        self._config.write_text(json.dumps({"mcpServers": servers}))
        folders = {f"XDG_{name}_HOME": str(home) for name in ("CONFIG", "DATA", "CACHE", "STATE")}
        self._environ = {**os.environ, **folders, "HOME": str(home), "SHOP_KEY": KEY}
        self._environ["INTERLOCK_MCP_CONFIG"] = str(self._config)
        self._home = home

    def run(self, *arguments: str) -> str:
        """Run a command that succeeds; return its output."""
        program = Path(sys.executable).with_name("interlock")
        ran = subprocess.run(
            [program, *arguments],
            env=self._environ,
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert "canary" not in ran.stdout + ran.stderr
        return ran.stdout

    def chat(self, tool: str, arguments: dict[str, Any], answer: str) -> str:
        """Let a scripted model call a tool and answer; return the conversation."""
        script = self._home / "script.json"
        call = {"id": "c1", "name": tool, "input": arguments}
        script.write_text(json.dumps([{"tool_calls": [call]}, {"content": answer}]))
        self.run("chat", "--model", f"scripted:{script}", "Go")
        latest, *_ = json.loads(self.run("conversations", "list", "--json"))
        return self.run("conversations", "show", latest["id"], "--json")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    home = tmp_path_factory.mktemp("shop")
    with serving([sys.executable, "-m", "tests.openapi.shop"], home / "log") as url:
        openapi = {
            "document": f"{url}/openapi.json",
            "baseUrl": url,
            "auth": {"ApiKey": "${SHOP_KEY}"},
            "tools": {
                "get_order": "getOrder",
                "add_photo": "addPhoto",
                "list_orders": "listOrders",
            },
        }
        yield World(home, {"shop": {"openapi": openapi}})


@pytest.fixture(scope="module")
def jupyter(
    tmp_path_factory: pytest.TempPathFactory, installed: Callable[[str], str]
) -> Iterator[World]:
    home = tmp_path_factory.mktemp("jupyter")
    folder = home / "work"
    (folder / "a folder").mkdir(parents=True)
    (folder / "a folder" / "note.txt").write_text("tea")
    (home / "secret.txt").write_text("canary outside of the folder")
    python = installed("build/jupyter/bin/python")
    command = [python, str(ROOT / "tests/servers/jupyter.py"), str(folder), TOKEN]
    with serving(command, home / "log", JUPYTER_CONFIG_DIR=str(home)) as url:
        openapi = {
            "document": f"{url}/api/spec.yaml",
            "baseUrl": url,
            "tools": {
                "status": "GET /api/status",
                "read": {
                    "operation": "GET /api/contents/{path}",
                    "arguments": {"path": {"slashes": True}},
                },
                "rename": {
                    "operation": "PATCH /api/contents/{path}",
                    "arguments": {"path": {"slashes": True}},
                },
            },
        }
        headers = {"Authorization": f"token {TOKEN}"}
        yield World(home, {"lab": {"openapi": openapi, "headers": headers}})


def test_call_reaches_a_fastapi_program_with_key_and_file(shop: World, tmp_path: Path) -> None:
    photo = tmp_path / "cat.png"
    photo.write_bytes(b"\x89PNG\x00")
    order = shop.run("call", "shop:get_order", "id=1")
    added = shop.run("call", "shop:add_photo", f"photo=@{photo}", "title=é")

    assert json.loads(order) == {"item": "tea", "count": 2, "note": "hot"}
    assert json.loads(added) == {"name": "cat.png", "bytes": 5, "title": "é"}


def test_chat_calls_operations_of_a_fastapi_application(shop: World) -> None:
    said = shop.chat("shop__get_order", {"id": 1}, "Two teas.")

    assert "Two teas." in said
    assert "hot" in said


def test_call_reads_and_renames_files_of_jupyter_by_its_own_document(jupyter: World) -> None:
    status = json.loads(jupyter.run("call", "lab:status"))
    note = json.loads(jupyter.run("call", "lab:read", "path=a folder/note.txt"))
    jupyter.run("call", "lab:rename", "path=a folder/note.txt", "path_body=b.txt")
    moved = json.loads(jupyter.run("call", "lab:read", "path=b.txt"))

    assert "started" in status
    assert note["content"] == moved["content"] == "tea"


def test_chat_lets_a_model_read_files_of_jupyter_but_none_outside(jupyter: World) -> None:
    inside = jupyter.chat("lab__status", {}, "It is up.")
    outside = jupyter.chat("lab__read", {"path": "../secret.txt"}, "I cannot.")

    assert "It is up." in inside
    assert "I cannot." in outside
    assert "outside of the folder" not in outside
