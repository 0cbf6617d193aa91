"""`interlock hook`: the policy for Claude Code's interactive sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interlock.config.gateway import BUILT_IN

RULES = [
    {"id": "time", "effect": "allow", "who": ["*"], "tools": ["time:*"]},
    {
        "id": "reads",
        "effect": "allow",
        "who": ["*"],
        "tools": [f"{BUILT_IN}:*"],
        "risk": "read",
    },
    {"id": "shell", "effect": "ask", "who": ["*"], "tools": [f"{BUILT_IN}:Bash"]},
]


@pytest.fixture
def policy(home: Path) -> Path:
    """A configuration with rules."""
    path = home / "policy.json"
    servers = {"time": {"command": "time-server"}}
    path.write_text(json.dumps({"mcpServers": servers, "gateway": {"policy": {"rules": RULES}}}))
    return path


def asked(tool: str, **arguments: Any) -> bytes:
    call = {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": arguments}
    return json.dumps(call).encode()


@pytest.mark.parametrize("tool", ["mcp__time__now", "mcp__gateway__time__now", "Read"])
def test_allowed_call_leaves_the_decision_to_claude_code(tool: str, interlock, policy: Path):
    ran = interlock("hook", "--config", policy, stdin=asked(tool))

    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_call_that_needs_an_approval_makes_claude_code_ask(interlock, policy: Path):
    ran = interlock("hook", "--config", policy, stdin=asked("Bash", command="ls"))

    assert ran.code == 0
    assert ran.json["hookSpecificOutput"]["permissionDecision"] == "ask"


@pytest.mark.parametrize(
    ("stdin", "reason"),
    [
        (asked("Write", path="x"), "claude-built-in:Write is denied"),
        (asked("mcp__other__tool"), "other:tool is denied"),
        (b"{", "the call on stdin is malformed"),
        (b'{"hook_event_name": "Stop", "tool_name": "x"}', "Stop has no policy"),
    ],
)
def test_denied_or_malformed_call_exits_with_2_and_the_reason(
    stdin: bytes, reason: str, interlock, policy: Path
):
    ran = interlock("hook", "--config", policy, stdin=stdin)

    assert (ran.code, ran.out) == (2, "")
    assert reason in ran.err


def test_missing_configuration_denies_the_call(interlock, home: Path):
    ran = interlock("hook", "--config", home / "absent.json", stdin=asked("Read"))

    assert ran.code == 2
    assert "absent.json" in ran.err
