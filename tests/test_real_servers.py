"""Servers that other people wrote: the time server's every tool, the git server's reading ones."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from interlock.client import Client
from interlock.errors import RemoteError
from tests.support.rows import each_row

pytestmark = [
    pytest.mark.program("mcp-server-time and mcp-server-git"),
    pytest.mark.asyncio(loop_scope="module"),
]

BIN = Path(sys.executable).parent
TIME = (str(BIN / "mcp-server-time"), "--local-timezone", "Europe/Berlin")
GIT = (str(BIN / "mcp-server-git"),)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["auto", "legacy"])
async def time_server(request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with Client.stdio(*TIME, revision=request.param) as client:
        yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def git_server() -> AsyncIterator[Client]:
    async with Client.stdio(*GIT) as client:
        yield client


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """A repository of one commit and one change."""

    def git(*arguments: str) -> None:
        alone = {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "HOME": str(tmp_path),
        }
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, env=alone, check=True)

    git("init", "--quiet", "--initial-branch=trunk")
    (tmp_path / "poem.txt").write_text("roses\n")
    git("add", "poem.txt")
    git("commit", "--quiet", "--message=Begin the poem")
    (tmp_path / "poem.txt").write_text("roses\nviolets\n")
    return str(tmp_path)


async def test_every_tool_of_the_time_server_answers(time_server: Client):
    tools = await time_server.list_tools()
    now = await time_server.call_tool("get_current_time", {"timezone": "Asia/Tokyo"})
    converted = await time_server.call_tool(
        "convert_time",
        {"source_timezone": "Asia/Tokyo", "time": "12:30", "target_timezone": "Asia/Kolkata"},
    )

    assert sorted(tool.name for tool in tools) == ["convert_time", "get_current_time"]
    assert json.loads(now.text)["timezone"] == "Asia/Tokyo"
    assert json.loads(converted.text)["target"]["datetime"].endswith("T09:00:00+05:30")
    assert json.loads(converted.text)["time_difference"] == "-3.5h"


@each_row(
    ("name", "arguments"),
    [
        ("get_current_time", {"timezone": "Mars/Base"}),
        ("get_current_time", {}),
        ("convert_time", {"source_timezone": "UTC", "time": "25:99", "target_timezone": "UTC"}),
    ],
)
async def test_time_server_refuses_wrong_arguments_with_an_error_result(
    time_server: Client, name: str, arguments: dict[str, str]
):
    refused = await time_server.call_tool(name, arguments)

    assert refused.is_error
    assert refused.text


async def test_unknown_tool_of_the_time_server_raises_invalid_params(time_server: Client):
    with pytest.raises(RemoteError, match="no_such_tool") as told:
        await time_server.call_tool("no_such_tool")

    assert told.value.code == -32602


async def test_concurrent_calls_get_their_own_answers(time_server: Client):
    zones = ["Asia/Tokyo", "Europe/Paris", "America/Lima", "Africa/Cairo", "UTC"] * 10
    answers = await asyncio.gather(
        *(time_server.call_tool("get_current_time", {"timezone": zone}) for zone in zones)
    )

    assert [json.loads(answer.text)["timezone"] for answer in answers] == zones


async def test_reading_tools_of_the_git_server_answer(git_server: Client, repository: str):
    async def call(name: str, **arguments: object) -> str:
        result = await git_server.call_tool(name, {"repo_path": repository, **arguments})
        assert not result.is_error, result.text
        return result.text

    names = {tool.name for tool in await git_server.list_tools()}

    assert {"git_status", "git_log", "git_diff_unstaged", "git_show", "git_branch"} <= names
    assert "poem.txt" in await call("git_status")
    assert "+violets" in await call("git_diff_unstaged")
    assert "Begin the poem" in await call("git_log", max_count=1)
    assert "+roses" in await call("git_show", revision="HEAD")
    assert "trunk" in await call("git_branch", branch_type="local")
    assert "violets" not in await call("git_diff_staged")


async def test_git_server_outside_a_repository_returns_an_error_result(
    git_server: Client, tmp_path: Path
):
    refused = await git_server.call_tool("git_status", {"repo_path": str(tmp_path / "nowhere")})

    assert refused.is_error
    assert refused.text
