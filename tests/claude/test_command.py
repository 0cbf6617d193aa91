"""The commands around Claude Code, with the real program."""

from __future__ import annotations

import json
from pathlib import Path

from tests.claude import programs
from tests.claude.conftest import Run
from tests.claude.messages_api import MessagesApi, call, say, script


async def test_prompt_prints_the_answer_and_denies_calls_that_need_approval(
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
