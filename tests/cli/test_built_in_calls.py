"""Claude Code's own tools at the terminal: the policy decides, then the person."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from interlock.claude import Allow, Deny, Request
from interlock.cli.approval import TerminalApproval
from interlock.cli.built_in_calls import decide_by
from interlock.cli.terminal_prompt import TerminalPrompt
from interlock.config import Config, loads

DENIES_BASH = b"""{"mcpServers": {}, "gateway": {"policy": {"rules": [
    {"id": "bash", "effect": "deny", "who": ["*"], "tools": ["claude-built-in:Bash"]},
    {"id": "all", "effect": "allow", "who": ["*"], "tools": ["*:*"]}
]}}}"""


@pytest.mark.parametrize(
    ("config", "yes", "address", "allowed"),
    [
        (Config(), False, "claude-built-in:Read", True),
        (Config(), False, "claude-built-in:Bash", False),  # no person can approve it
        (Config(), True, "claude-built-in:Bash", True),
        (Config(), False, "files:delete", True),  # the toolbox decides
        (loads(DENIES_BASH), True, "claude-built-in:Bash", False),
        (loads(DENIES_BASH), False, "claude-built-in:Write", True),
    ],
)
async def test_tool_of_claude_code_runs_if_policy_and_person_allow_it(
    config: Config, yes: bool, address: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TerminalPrompt, "is_available", False)
    approval = TerminalApproval(TerminalPrompt(nullcontext), yes=yes)
    decided = await decide_by(config, approval)(Request(address, {"command": "ls"}, "t-1"))

    assert isinstance(decided, Allow if allowed else Deny)
