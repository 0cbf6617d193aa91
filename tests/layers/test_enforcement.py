"""The layer that denies calls, and the policy of a person at their own terminal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.calls import Call, Caller, Entry, Outcome
from interlock.config import loads
from interlock.errors import CallRefused
from interlock.layers import Layers
from interlock.layers.asking import asking
from interlock.policy import Policy
from interlock.types import Tool
from tests.support.rows import each_row

READS, DESTROYS = b'{"readOnlyHint": true}', b'{"destructiveHint": true}'


def local_policy(server: dict[str, Any], **root: Any) -> Policy:
    file = {"mcpServers": {"crm": {"command": "x"} | server}} | root
    return Policy.for_local_user(loads(msgspec.json.encode(file)))


def entry(name: str, annotations: bytes = b"{}") -> Entry:
    tool = b'{"name": "%b", "inputSchema": {}, "annotations": %b}' % (name.encode(), annotations)
    decoded = msgspec.json.decode(tool, type=Tool)
    return Entry("crm", decoded, f"crm:{name}", f"crm__{name}", b"{}", tool)


@each_row(
    ("server", "annotations", "effect"),
    [
        ({}, b"{}", "ask"),
        ({}, READS, "allow"),
        ({}, DESTROYS, "ask"),
        ({"tools": {"risk": {"read": ["get"]}}}, b"{}", "allow"),
        ({"tools": {"risk": {"read": ["get"]}}}, DESTROYS, "ask"),
        ({"tools": {"risk": {"write": ["g*"]}}}, READS, "ask"),
        ({"autoApprove": ["get"]}, b"{}", "allow"),
        ({"alwaysAllow": ["g*"]}, b"{}", "ask"),
        ({"alwaysAllow": ["get"], "tools": {"risk": {"write": ["get"]}}}, b"{}", "ask"),
    ],
)
def test_local_user_is_asked_unless_the_tool_only_reads_or_was_approved(
    server: dict[str, Any], annotations: bytes, effect: str
):
    decided = local_policy(server).decide(Caller(), entry("get", annotations), {})

    assert decided.effect == effect


def test_gateway_policy_applies_to_the_local_user_and_ignores_hints():
    rule = {"id": "reads", "effect": "allow", "who": ["*"], "tools": ["*:*"], "risk": "read"}
    policy = local_policy({"autoApprove": ["get"]}, gateway={"policy": {"rules": [rule]}})

    assert policy.decide(Caller(), entry("get", READS), {}).reason == "no_rule"


async def called(policy: Policy, *, answer: bool | None) -> list[str]:
    """Return what was asked, and "sent" if the call passed; None: nothing can be asked."""
    seen: list[str] = []

    async def ask(call: Call, _: object) -> bool | None:
        assert call.decision is not None
        seen.append(f"{call.entry.address} {call.arguments} {call.decision.rule}")
        return answer

    async def send(_: Call) -> Outcome:
        seen.append("sent")
        return Outcome(msgspec.Raw(b"{}"))

    layers = Layers(policy=policy, approval=None if answer is None else asking(ask))
    await layers.build(send)(Call(entry("put"), {"a": 1}))
    return seen


async def test_approved_call_passes_after_one_question():
    assert await called(local_policy({}), answer=True) == ["crm:put {'a': 1} writes", "sent"]


@each_row(("answer", "reason"), [(False, "approval_denied"), (None, "approval_required")])
async def test_call_that_is_not_approved_is_denied(answer: bool | None, reason: str):
    with pytest.raises(CallRefused) as caught:
        await called(local_policy({}), answer=answer)

    assert caught.value.reason == reason


async def test_call_that_others_must_approve_is_denied_without_a_question():
    rule = {"id": "r", "effect": "ask", "who": ["*"], "tools": ["*:*"], "approvers": ["user:b"]}
    policy = local_policy({}, gateway={"policy": {"rules": [rule]}})

    with pytest.raises(CallRefused, match="needs approval by user:b"):
        await called(policy, answer=True)
