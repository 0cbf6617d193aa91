"""Claude Code with a model that follows a script."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.claude import ClaudeCode
from tests.claude import programs
from tests.claude.messages_api import MessagesApi, messages_api
from tests.support.node import node_folder

Run = Callable[..., Awaitable[tuple[int, str, str]]]
SERVER = """\
from interlock import Server
from interlock.types import ToolAnnotations

server = Server("math")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def store(n: int) -> str:
    return "stored"
"""


@pytest.fixture
async def api() -> AsyncIterator[MessagesApi]:
    """The model."""
    async with messages_api() as api:
        yield api


@pytest.fixture(params=programs.CHOSEN)
def claude_program(request: pytest.FixtureRequest) -> str:
    """The version of Claude Code."""
    version: str = request.param
    programs.program(version)
    return version


@pytest.fixture
def claude(
    claude_program: str,
    api: MessagesApi,
    tmp_path: Path,
    nothing_is_left: object,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., ClaudeCode]:
    """Make a `ClaudeCode` in an empty folder: its servers and options."""
    node = node_folder()
    monkeypatch.setenv("PATH", f"{node}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "work"
    folder.mkdir()

    def make(servers: Any = None, **options: Any) -> ClaudeCode:
        env = {**programs.environment(api.url, tmp_path), **options.pop("env", {})}
        path = programs.program(claude_program)
        return ClaudeCode(servers, **{"program": path, "cwd": folder, "env": env, **options})

    return make


@pytest.fixture
def interlock(claude_program: str, api: MessagesApi, tmp_path: Path) -> Run:
    """Run `python -m interlock` in a folder with a server; more variables as keywords."""
    (tmp_path / "math_server.py").write_text(SERVER)
    entry = {"command": sys.executable, "args": ["-m", "interlock", "run", "math_server.py"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"math": entry}}))
    node = node_folder()
    env = {
        "PATH": f"{node}{os.pathsep}{os.environ['PATH']}",
        "INTERLOCK_CLAUDE": str(programs.program(claude_program)),
        "INTERLOCK_DATABASE": str(tmp_path / "chat.db"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        **programs.environment(api.url, tmp_path),
    }

    async def run(*arguments: str, **variables: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "interlock", *arguments),
            env={**env, **variables},
            cwd=tmp_path,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    return run
