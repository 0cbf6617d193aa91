"""Short forms of rules, tools and callers, and a policy with an example of each rule."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from interlock.auth import Principal
from interlock.calls import Caller, Entry, Item
from interlock.config.gateway import Effect, PolicyRules, Rule, View
from interlock.config.servers import ToolRisk
from interlock.policy import Policy
from interlock.schema import condition
from interlock.types import Tool, ToolAnnotations


def entry(address: str, **hints: Any) -> Entry:
    server, _, name = address.partition(":")
    annotations = ToolAnnotations(**hints) if hints else None
    tool = Tool(name, {"type": "object"}, annotations=annotations)
    return Entry(server, tool, address, f"{server}__{name}", b'{"type": "object"}')


@cache
def _compiled(document: bytes) -> condition.Condition:
    return condition.compile(msgspec.json.decode(document))


def compiled_condition(document: dict[str, Any]) -> condition.Condition:
    return _compiled(msgspec.json.encode(document))


def rule(id: str, effect: Effect, who: str, patterns: str, **members: Any) -> Rule:
    """A rule; `arguments` and `claims` are conditions as they are written in a file."""
    for key in ("arguments", "claims"):
        conditions = members.get(key, {})
        members[key] = {name: compiled_condition(each) for name, each in conditions.items()}
    members.setdefault("kind", "tools")
    return Rule(
        id=id, effect=effect, who=tuple(who.split()), patterns=tuple(patterns.split()), **members
    )


def compiled(*rules: Rule, read_only: bool = False, **parts: Any) -> Policy:
    return Policy.compile(PolicyRules(rules=rules, read_only=read_only), **parts)


def user(name: str, scopes: str = "mcp:*", **members: Any) -> Caller:
    return Caller(Principal(name, frozenset(scopes.split()), **members))


SERVERS = {
    "crm": "get_customer list_customers search_orders "
    "refund delete_customer update_order note close",
    "git": "get_repo list_repos search_code create_issue merge_pull delete_repo push fork",
    "fs": "get_info list_files search_files write_file delete_file move_file chmod read_file",
    "time": "get_time list_zones search_zone set_zone start stop convert reset",
    "ops": "get_status list_nodes search_logs deploy restart scale drain destroy",
}


READS = ToolRisk(read=("get_*", "list_*", "search_*"))


GOLDEN = compiled(
    rule("everybody-reads", "allow", "*", "*:*", risk="read"),
    rule(
        "small-refunds",
        "allow",
        "group:support",
        "crm:refund",
        arguments={"amount": {"maximum": 50}},
    ),
    rule(
        "refunds",
        "ask",
        "group:support",
        "crm:refund",
        arguments={"amount": {"exclusiveMinimum": 50}},
        approvers=("group:leads",),
        expires=900.0,
        record="full",
    ),
    rule("own-repos", "allow", "group:dev", "git:*", arguments={"owner": {"const": "acme"}}),
    rule("never-prod", "deny", "*", "ops:*", arguments={"env": {"pattern": "^prod"}}),
    rule("no-destroy", "deny", "*", "*:destroy *:delete_*"),
    rule("dev-files", "allow", "group:dev", "fs:*", arguments={"path": {"under": "/srv/data"}}),
    rule("ops-ask", "ask", "group:ops", "ops:*"),
    rule("leads", "allow", "group:leads", "*:*"),
    rule("contractors", "deny", "group:contractors", "crm:*"),
    rule("finance", "allow", "*", "crm:update_order", claims={"department": {"const": "finance"}}),
    rule("kiosk", "allow", "*", "time:set_zone", view="kiosk"),
    groups={"support": ("user:anna", "https://id.example#4711"), "leads": ("user:berta",)},
    views={"kiosk": View(servers=("time", "crm"), deny=("crm:refund",))},
    risks=dict.fromkeys(SERVERS, READS),
)


def tool(address: str) -> Entry:
    return entry(address, destructive_hint=True) if address == "ops:search_logs" else entry(address)


def check_steps(
    policy: Policy, caller: Caller, item: Entry | Item, arguments: dict[str, Any] | None = None
) -> None:
    """The steps must lead to the decision."""
    decision = policy.decide(caller, item, arguments)
    steps = policy.steps(caller, item, arguments)
    denials = [step for step in steps if step.verdict == "deny"]
    verdicts = {"allow": "ok", "ask": "ask"}
    if decision.effect == "deny":
        names = {"not_in_view": "view", "scope": "scope", "read_only": "read_only"}
        assert denials[0].step == names.get(decision.reason, "policy")
    else:
        assert not denials
        assert steps[-1].verdict == verdicts[decision.effect]
    if decision.rule and not decision.is_uncertain:
        holding = [fact.rule for fact in steps[-1].rules if fact.holds]
        assert holding[0] == decision.rule
        assert f"rule {decision.rule}" in steps[-1].detail
