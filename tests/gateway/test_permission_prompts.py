"""Claude Code asks a gateway about its own tools, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.auth.principal import Principal
from interlock.store import AuditReader
from tests.gateway.conftest import RunningGateway, bearer, offering
from tests.support.scripted_server import Json

NAME = "interlock__approve"
RULES = [
    {"id": "tools", "effect": "allow", "who": ["*"], "tools": ["s:*"]},
    {"id": "reads", "effect": "allow", "who": ["*"], "tools": ["claude-built-in:Read"]},
    {"id": "shell", "effect": "ask", "who": ["*"], "tools": ["claude-built-in:Bash"]},
    {"id": "web", "effect": "deny", "who": ["*"], "tools": ["claude-built-in:WebFetch"]},
]
SETTINGS = {"policy": {"rules": RULES}, "audit": {"arguments": "full"}}
LEAD = Principal("user:berta", frozenset({"admin:approve"}))


def stating(client: str, key: str) -> dict[str, Any]:
    """Return what a client that can show forms sends with each request."""
    return {
        "meta": {"io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"}},
        "capabilities": {"elicitation": {"form": {}}},
        "headers": bearer(key),
    }


async def prompt(gateway: RunningGateway, key: str, tool: str, **input: Any) -> Json:
    """Ask as Claude Code does, and return its verdict."""
    arguments = {"tool_name": tool, "input": input, "tool_use_id": "toolu_1"}
    reply = await gateway.http.call(NAME, arguments, **stating("claude-code", key))
    (block,) = reply.json["result"]["content"]
    assert block["type"] == "text"
    verdict: Json = json.loads(block["text"])
    return verdict


async def records(tmp_path: Path) -> list[Json]:
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        every = [each async for piece in reader.export() for each in piece]
    about = [each for each in every if each.get("server") and each["kind"] != "pin"]
    assert not [each for each in about if each["server"] == "interlock"]
    return about


@pytest.mark.parametrize("client", ["claude-code", "cursor"])
async def test_approve_is_for_claude_code_only(running: Callable[..., Any], client: str):
    async with running(SETTINGS, s=offering("x")) as gateway:
        key = await gateway.key()
        await gateway.http.ask("tools/list", **stating("claude-code", key))
        stated = stating(client, key)
        listed = await gateway.http.ask("tools/list", **stated)
        called = await gateway.http.call(NAME, {"tool_name": "Read", "input": {}}, **stated)

    names = [each["name"] for each in listed.json["result"]["tools"]]
    assert (NAME in names) == (client == "claude-code")
    assert ("result" in called.json) == (client == "claude-code")


async def test_allowed_tool_is_recorded_and_its_input_returned(
    running: Callable[..., Any], tmp_path: Path
):
    async with running(SETTINGS, s=offering("x")) as gateway:
        long = "é" * 200_000  # longer than a result may be
        verdict = await prompt(gateway, await gateway.key(), "Read", file_path="/a", text=long)

    assert verdict == {"behavior": "allow", "updatedInput": {"file_path": "/a", "text": long}}
    found = await records(tmp_path)
    assert [(each["kind"], each["tool"]) for each in found] == [
        ("intent", "claude-built-in:Read"),
        ("outcome", "claude-built-in:Read"),
    ]
    assert found[0]["rule"] == "reads"
    assert found[0]["client"] == "claude-code"


@pytest.mark.parametrize(
    ("tool", "reason"),
    [("WebFetch", "denied_by_rule"), ("Write", "no_rule"), ("mcp__s__x", "no_rule")],
)
async def test_denied_tool_is_denied_with_the_reason_and_recorded(
    running: Callable[..., Any], tmp_path: Path, tool: str, reason: str
):
    async with running(SETTINGS, s=offering("x")) as gateway:
        verdict = await prompt(gateway, await gateway.key(), tool, url="https://example.com")

    assert verdict["behavior"] == "deny"
    assert reason in verdict["message"]
    (refused,) = await records(tmp_path)
    assert (refused["kind"], refused["tool"]) == ("refused", f"claude-built-in:{tool}")
    assert refused["reason"] == reason


async def test_asked_tool_is_denied_until_others_approve_and_then_allowed_once(
    running: Callable[..., Any], tmp_path: Path
):
    rules = [*RULES[:2], {**RULES[2], "approvers": ["caller", "user:berta"]}]
    async with running({**SETTINGS, "policy": {"rules": rules}}, s=offering("x")) as gateway:
        key, approvals = await gateway.key(), gateway.assembly.services.approvals
        pending = await prompt(gateway, key, "Bash", command="make")
        (found,) = await approvals.list(["pending"])  # the client's form was not asked
        await approvals.approve(found.id, found.hash, LEAD)
        other = await prompt(gateway, key, "Bash", command="make install")
        allowed = await prompt(gateway, key, "Bash", command="make")
        again = await prompt(gateway, key, "Bash", command="make")

    assert [each["behavior"] for each in (pending, other, allowed, again)] == [
        "deny",
        "deny",
        "allow",
        "deny",
    ]
    assert found.id in pending["message"]
    assert allowed["updatedInput"] == {"command": "make"}
    kinds = [each["kind"] for each in await records(tmp_path)]
    assert kinds[:3] == ["asked", "decided", "asked"]
    assert kinds.count("intent") == kinds.count("outcome") == 1


async def test_reload_changes_the_decisions_of_approve(running: Callable[..., Any]):
    async with running(SETTINGS, s=(server := offering("x"))) as gateway:
        key = await gateway.key()
        before = await prompt(gateway, key, "Read")
        await gateway.reload({**SETTINGS, "policy": {"rules": RULES[:1]}}, s=server)
        after = await prompt(gateway, key, "Read")

    assert [before["behavior"], after["behavior"]] == ["allow", "deny"]
