"""`interlock hook`: the policy for Claude Code's interactive sessions."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.config.gateway import BUILT_IN
from interlock.store import AuditReader
from tests.support.rows import each_row

RULES = [
    {"id": "time", "effect": "allow", "who": ["*"], "tools": ["time:*"]},
    {
        "id": "reads",
        "effect": "allow",
        "who": ["*"],
        "tools": [f"{BUILT_IN}:*"],
        "risk": "read",
    },
    {"id": "no-web", "effect": "deny", "who": ["*"], "tools": [f"{BUILT_IN}:WebFetch"]},
    {"id": "shell", "effect": "ask", "who": ["*"], "tools": [f"{BUILT_IN}:Bash"]},
]


@pytest.fixture
def policy(home: Path) -> Path:
    """A configuration with rules."""
    path = home / "policy.json"
    servers = {"time": {"command": "time-server"}}
    gateway = {"policy": {"rules": RULES}, "database": str(home / "gateway.db")}
    path.write_text(json.dumps({"mcpServers": servers, "gateway": gateway}))
    return path


def asked(tool: str, **arguments: Any) -> bytes:
    return hook_input("PreToolUse", tool, tool_input=arguments)


def hook_input(event: str, tool: str, **members: Any) -> bytes:
    call = {"hook_event_name": event, "tool_name": tool, "session_id": "s-1"}
    return json.dumps({**call, "tool_use_id": "toolu_1", **members}).encode()


@pytest.mark.parametrize("tool", ["mcp__time__now", "mcp__gateway__time__now", "Read"])
def test_allowed_call_leaves_the_decision_to_claude_code(tool: str, interlock, policy: Path):
    given = asked(tool, text="half \ud83d")
    ran = interlock("hook", "--gateway", "gateway", "--config", policy, stdin=given)

    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_call_that_needs_an_approval_makes_claude_code_ask(interlock, policy: Path):
    ran = interlock("hook", "--config", policy, stdin=asked("Bash", command="ls"))

    assert ran.code == 0
    assert ran.json["hookSpecificOutput"]["permissionDecision"] == "ask"


@each_row(
    ("stdin", "reason"),
    [
        (asked("Write", path="x"), "claude-built-in:Write is denied"),
        (asked("WebFetch"), "claude-built-in:WebFetch is denied by rule no-web (denied_by_rule)"),
        (asked("mcp__other__tool"), "other:tool is denied"),
        (asked("mcp__gateway__time__now"), "gateway:time__now is denied"),  # only with --gateway
        (asked(f"mcp__{BUILT_IN}__Read"), "no server may have the name 'claude-built-in'"),
        (b"{", "the call on stdin is malformed"),
        (hook_input("Stop", "x"), "Stop has no policy"),
    ],
)
def test_denied_or_malformed_call_exits_with_2_and_the_reason(
    stdin: bytes, reason: str, interlock, policy: Path
):
    ran = interlock("hook", "--config", policy, stdin=stdin)

    assert (ran.code, ran.out) == (2, "")
    assert reason in ran.err


@each_row(
    ("tool", "gateway", "denied"),
    [
        ("mcp__git_hub__push", "gateway", "git.hub:push is denied by rule no-push"),
        ("mcp__my_gateway__git_hub__push", "my gateway", "git.hub:push is denied by rule no-push"),
        ("mcp__a__b__push", "gateway", "can be a tool of 'a__b'"),
        ("mcp__x_y__push", "gateway", "can be a tool of 'x.y' or 'x y'"),
        ("mcp__git_hub__pull", "gateway", ""),
    ],
)
def test_servers_whose_names_claude_code_rewrites_keep_their_rules(
    tool: str, gateway: str, denied: str, interlock, home: Path
):
    rules = [
        {"id": "no-push", "effect": "deny", "who": ["*"], "tools": ["git.hub:push"]},
        {"id": "rest", "effect": "allow", "who": ["*"], "tools": ["*:*"]},
    ]
    servers = {each: {"command": "none"} for each in ("git.hub", "a__b", "x.y", "x y")}
    gateway_section = {"policy": {"rules": rules}, "database": str(home / "gateway.db")}
    path = home / "policy.json"
    path.write_text(json.dumps({"mcpServers": servers, "gateway": gateway_section}))

    ran = interlock("hook", "--gateway", gateway, "--config", path, stdin=asked(tool))

    assert (ran.code, denied in ran.err) == (2 if denied else 0, True), ran.err


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize("closed", ["<&-", "2>/dev/full", ">/dev/full"])
def test_hook_that_cannot_read_or_write_blocks_the_call(policy: Path, closed: str):
    for tool in ("Bash", "Write"):  # asked about, and denied
        command = f"{sys.executable} -m interlock hook --config {policy} {closed}"
        ran = subprocess.run(command, shell=True, input=asked(tool), capture_output=True)
        assert ran.returncode == 2 or (closed == "2>/dev/full" and tool == "Bash"), ran


def test_hook_without_any_configuration_says_so_and_blocks(interlock, home: Path):
    ran = interlock("hook", stdin=asked("Read"))

    assert (ran.code, ran.out) == (2, "")
    assert "no configuration was found" in ran.err


@each_row("address", ["http://127.0.0.1:8080/mcp", "127.0.0.1:8080", "tools.example/mcp"])
def test_address_instead_of_the_name_of_a_gateway_denies_the_call(address: str, interlock, policy):
    ran = interlock("hook", "--gateway", address, "--config", policy, stdin=asked("Read"))

    assert ran.code == 2
    assert "the gateway's name in Claude Code, not its address" in ran.err


def test_missing_configuration_denies_the_call(interlock, home: Path):
    ran = interlock("hook", "--config", home / "absent.json", stdin=asked("Read"))

    assert ran.code == 2
    assert "absent.json" in ran.err


@pytest.mark.parametrize(
    ("event", "status"), [("PostToolUse", "ok"), ("PostToolUseFailure", "tool_error")]
)
def test_call_that_claude_code_makes_has_an_intent_and_an_outcome(
    event: str, status: str, interlock, policy: Path, home: Path
):
    after = hook_input(event, "Bash", tool_response={"stdout": "x"}, duration_ms=12.5)
    for stdin in (asked("Bash", command="ls"), after, asked("mcp__gateway__time__now")):
        ran = interlock("hook", "--gateway", "gateway", "--config", policy, stdin=stdin)
        assert ran.code == 0

    intent, outcome = told(home)
    assert (intent["kind"], intent["tool"]) == ("intent", "claude-built-in:Bash")
    assert (intent["surface"], intent["rule"]) == ("claude", "shell")
    assert intent["origin"] == {"session": "s-1", "toolUse": "toolu_1", "agent": ""}
    assert (outcome["call"], outcome["status"]) == (intent["call"], status)
    assert (outcome["kind"], outcome["ms"], outcome["bytes"]) == ("outcome", 12.5, 15)


def test_denied_call_is_recorded_and_a_trail_that_fails_stops_the_call(
    interlock, policy: Path, home: Path
):
    assert interlock("hook", "--config", policy, stdin=asked("Write")).code == 2
    [refused] = told(home)
    assert (refused["kind"], refused["tool"]) == ("refused", "claude-built-in:Write")

    (home / "gateway.db").unlink()
    (home / "gateway.db").mkdir()
    ran = interlock("hook", "--config", policy, stdin=asked("Read"))
    assert ran.code == 2
    assert "gateway.db" in ran.err


def told(home: Path) -> list[dict[str, Any]]:
    """Return the records of calls, oldest first."""

    async def read() -> list[dict[str, Any]]:
        async with AuditReader.open(home / "gateway.db") as reader:
            return [each async for piece in reader.export() for each in piece]

    return sorted(asyncio.run(read()), key=lambda each: each["at"])


def test_hook_of_a_gateway_loads_no_package_that_it_does_not_need(interlock, policy: Path):
    first = interlock("hook", "--config", policy, stdin=asked("Read"))  # creates the database
    code = "import sys, interlock.cli\ntry: interlock.cli.main()\nfinally: print(*sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code, "hook", "--config", str(policy)],
        input=asked("Read"),
        capture_output=True,
        check=True,
    )
    loaded = {*ran.stdout.decode().split()}

    assert (first.code, ran.returncode) == (0, 0)
    unneeded = {"sqlalchemy", "aiosqlite", "jwt", "aiohttp"}
    unneeded |= {
        f"interlock.{name}" for name in ("agent", "client", "toolbox", "store.database.database")
    }
    assert loaded & {*unneeded, "cryptography"} == {"cryptography"}  # it signs the audit trail
