"""Rights and decisions that are remembered for a caller."""

from __future__ import annotations

import pytest

from interlock import config
from interlock.calls import LOCAL
from interlock.config.gateway import View
from interlock.config.servers import ToolRisk
from interlock.policy import Policy, policy
from tests.policy.support import compiled, entry, rule, user


def test_a_changed_definition_is_decided_again():
    strict = compiled(
        rule("a", "allow", "*", "*:*", risk="read"), risks={"crm": ToolRisk(read=("*",))}
    )
    caller = user("a")

    assert strict.decide(caller, entry("crm:a")).effect == "allow"
    assert strict.decide(caller, entry("crm:a", destructive_hint=True)).effect == "deny"
    assert strict.decide(caller, entry("crm:a")).effect == "allow"


def test_callers_with_the_same_id_have_separate_rights():
    allowed, denied = user("a", "mcp:*"), user("a", "mcp:read")
    strict = compiled(rule("a", "allow", "*", "*:*"))

    for _ in range(3):
        assert strict.decide(allowed, entry("crm:a")).effect == "allow"
        assert strict.decide(denied, entry("crm:a")).reason == "scope"


def test_remembered_callers_and_rights_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(policy, "MAX_CALLERS", 3)
    monkeypatch.setattr(policy, "MAX_RIGHTS", 20)
    strict = compiled(rule("a", "allow", "user:1", "*:*"))

    for round in range(10):
        for name in range(5):
            caller = user(f"user:{name}")
            for address in (f"crm:{round}", "crm:a"):
                decision = strict.decide(caller, entry(address))
                assert (decision.effect == "allow") == (name == 1)
        rights = [len(each.tools) for each in strict._callers.values()]
        assert len(rights) <= 3
        assert sum(rights) <= strict._remembered <= 20


def test_tools_that_the_same_rules_decide_about_share_one_right():
    strict = compiled(
        rule("all", "allow", "*", "*:*"),
        rule("no", "deny", "*", "crm:drop_*"),
        risks={"crm": ToolRisk(read=("get_*",))},
    )
    caller = user("user:a", "mcp:crm:*")
    for number in range(100):
        assert strict.decide(caller, entry(f"crm:get_{number}")).risk == "read"
        assert strict.decide(caller, entry(f"crm:put_{number}")).effect == "allow"
        assert strict.decide(caller, entry(f"crm:drop_{number}")).rule == "no"
        assert strict.decide(caller, entry(f"wiki:get_{number}")).reason == "scope"

    (rights,) = strict._callers.values()
    assert len({id(right) for _, right in rights.tools.values()}) == 4


def test_the_hash_changes_with_every_rule_that_changes_a_decision():
    one = rule("a", "allow", "*", "*:*", arguments={"a": {"const": 1}})
    other = rule("a", "allow", "*", "*:*", arguments={"a": {"const": 2}})
    hashes = [
        Policy.compile(None).hash,
        compiled().hash,
        compiled(one).hash,
        compiled(other).hash,
        compiled(one, groups={"a": ("user:a",)}).hash,
        compiled(one, views={"a": View()}).hash,
        compiled(one, risks={"a": ToolRisk(read=("*",))}).hash,
    ]

    assert len(set(hashes)) == len(hashes)
    assert compiled(one).hash == compiled(one).hash


def test_from_config_names_servers_as_their_addresses_do():
    loaded = config.loads(
        b"""{"mcpServers": {
          "a": {"command": "a", "namespace": "crm", "tools": {"risk": {"read": ["get"]}}},
          "b": {"type": "python", "object": "b:c", "tools": {"risk": {"read": ["get"]}}}},
         "gateway": {"groups": {"g": ["user:a"]}, "views": {"v": {"servers": ["crm"]}},
          "policy": {"rules": [
            {"id": "r", "effect": "allow", "who": ["group:g"], "tools": ["*:*"], "risk": "read"}
          ]}}}"""
    )
    strict = Policy.from_config(loaded)

    assert strict.decide(user("user:a"), entry("crm:get")).effect == "allow"
    assert strict.decide(user("user:a"), entry("b:get")).effect == "allow"
    assert strict.decide(user("user:a", view="v"), entry("b:get")).reason == "not_in_view"
    assert strict.decide(user("user:b"), entry("crm:get")).reason == "no_rule"
    without = config.loads(b'{"mcpServers": {"a": {"command": "a"}}}')
    assert Policy.from_config(without).decide(LOCAL, entry("a:get")).effect == "allow"
