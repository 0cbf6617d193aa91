"""What rules, risks, scopes and views permit."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.auth import Principal
from interlock.calls import LOCAL, Entry
from interlock.config.gateway import View
from interlock.config.servers import ToolRisk
from interlock.policy import Item, Policy
from interlock.types import Tool
from tests.policy.support import check_steps, compiled, entry, rule, user
from tests.support.rows import each_row


def test_without_a_policy_scopes_decide():
    open_policy = Policy.compile(None, risks={"crm": ToolRisk(read=("get",))})

    assert open_policy.decide(user("a", "mcp:read"), entry("crm:get"), {}).effect == "allow"
    assert open_policy.decide(user("a", "mcp:read"), entry("crm:put"), {}).reason == "scope"
    assert open_policy.decide(LOCAL, entry("crm:put"), {}).effect == "allow"


def test_an_empty_policy_denies_everything():
    assert compiled().decide(LOCAL, entry("crm:get"), {}).reason == "no_rule"


def test_read_only_policy_denies_tools_that_may_write():
    read_only = compiled(
        rule("all", "allow", "*", "*:*"), read_only=True, risks={"crm": ToolRisk(read=("get",))}
    )

    assert read_only.decide(LOCAL, entry("crm:get"), {}).effect == "allow"
    decision = read_only.decide(LOCAL, entry("crm:put"), {})
    assert decision.reason == "read_only"
    check_steps(read_only, LOCAL, entry("crm:put"), {})


@each_row(
    ("address", "hints", "risk"),
    [
        ("crm:get", {}, "read"),
        ("crm:get", {"title": "Get"}, "write"),  # without its definition, the hint's default counts
        ("crm:get", {"read_only_hint": True}, "read"),
        ("crm:get", {"destructive_hint": True}, "write"),
        ("crm:put", {"read_only_hint": True}, "write"),
        ("git:get", {"read_only_hint": True}, "write"),
    ],
)
def test_hints_of_a_server_never_lower_a_risk(address: str, hints: dict[str, Any], risk: str):
    risks = Policy.compile(None, risks={"crm": ToolRisk(read=("get",))})

    assert risks.risk(entry(address, **hints)) == risk


@each_row(
    ("annotations", "risk"),
    [
        (b'{"title": "Get"}', "read"),
        (b'{"destructiveHint": false}', "read"),
        (b'{"destructiveHint": true, "readOnlyHint": true}', "write"),
    ],
)
def test_only_a_destructive_hint_in_the_definition_raises_a_risk(annotations: bytes, risk: str):
    tool = b'{"name": "get", "inputSchema": {}, "annotations": %b}' % annotations
    listed = Entry("crm", msgspec.json.decode(tool, type=Tool), "crm:get", "crm__get", b"{}", tool)

    assert Policy.compile(None, risks={"crm": ToolRisk(read=("*",))}).risk(listed) == risk


@each_row(
    ("scopes", "allowed"),
    [
        ("mcp:*", "crm:get crm:put git:get"),
        ("mcp:read", "crm:get git:get"),
        ("mcp:crm:*", "crm:get crm:put"),
        ("mcp:crm:p?t", "crm:put"),
        ("mcp:read mcp:git:put", "crm:get git:get"),
        ("mcp:crm", ""),
        ("mcp:*:get", ""),
        ("mcp", ""),
        ("admin:* admin:write", ""),
        ("MCP:*", ""),
    ],
)
def test_scopes_include_the_matching_tools(scopes: str, allowed: str):
    every = Policy.compile(None, risks=dict.fromkeys(("crm", "git"), ToolRisk(read=("get",))))
    addresses = ["crm:get", "crm:put", "git:get"]
    caller = user("a", scopes)

    found = [each for each in addresses if every.decide(caller, entry(each)).effect == "allow"]

    assert found == allowed.split()


def test_the_server_of_a_pattern_ends_at_the_first_colon():
    strict = compiled(rule("a", "allow", "*", "*:delete"))

    assert strict.decide(LOCAL, entry("crm:delete"), {}).effect == "allow"
    assert strict.decide(LOCAL, entry("crm:notes:delete"), {}).reason == "no_rule"


def test_resources_and_prompts_have_separate_policy_rules():
    strict = compiled(
        rule("all", "allow", "*", "*:*"),
        rule("docs", "allow", "*", "crm:file:///docs/*", kind="resources"),
        rule("ask", "ask", "*", "crm:review", kind="prompts", arguments={"a": {"const": "b"}}),
        views={"empty": View(servers=(), deny=("*:*",)), "crm": View(allow=())},
    )
    docs, secret = (Item("resources", "crm", f"file:///{name}/a") for name in ("docs", "secret"))
    review = Item("prompts", "crm", "review")

    assert strict.decide(user("a", "mcp:read"), docs).rule == "docs"
    assert strict.decide(LOCAL, secret).reason == "no_rule"
    assert strict.decide(LOCAL, review).is_uncertain
    assert strict.decide(LOCAL, review, {"a": "b"}).rule == "ask"
    assert strict.decide(LOCAL, review, {"a": "c"}).reason == "no_rule"
    assert strict.decide(user("a", view="empty"), docs).reason == "not_in_view"
    assert strict.decide(user("a", view="crm"), docs).effect == "allow"
    assert strict.decide(user("a", "mcp:git:*"), docs).reason == "scope"
    check_steps(strict, LOCAL, docs)
    check_steps(strict, LOCAL, review, {})


def test_caller_with_an_unknown_view_is_denied_everything():
    assert compiled().decide(user("a", view="gone"), entry("crm:a")).reason == "not_in_view"


def test_ask_rule_for_other_approvers_precedes_ask_rule_for_the_caller():
    rules = [
        rule("a", "ask", "*", "*:*"),
        rule("b", "ask", "*", "*:*", approvers=("group:leads",)),
        rule("c", "ask", "*", "*:*", approvers=("*",)),
    ]
    for order in (rules, rules[::-1]):
        assert compiled(*order).decide(LOCAL, entry("crm:a"), {}).rule == "b"


def test_argument_may_be_absent_if_the_condition_permits_it():
    strict = compiled(
        rule("a", "allow", "*", "*:*", arguments={"n": {"maximum": 5, "absent": True}})
    )

    assert strict.decide(LOCAL, entry("crm:a"), {}).effect == "allow"
    assert strict.decide(LOCAL, entry("crm:a"), {"n": 5}).effect == "allow"
    assert strict.decide(LOCAL, entry("crm:a"), {"n": 6}).effect == "deny"
    assert strict.decide(LOCAL, entry("crm:a"), {"n": None}).effect == "deny"


@each_row("part", ["arguments", "claims"])
def test_condition_on_the_empty_name_is_checked(part: str):
    strict = compiled(rule("a", "allow", "*", "*:*", **{part: {"": {"const": 1}}}))

    for value, effect in ((1, "allow"), (2, "deny")):
        values = {"": value}
        caller = user("a", claims=values)
        decision = strict.decide(caller, entry("crm:a"), values)
        assert decision.effect == effect
        check_steps(strict, caller, entry("crm:a"), values)


@each_row("name", ["group:leads", "caller", "*"])
def test_principal_named_like_a_group_is_not_a_member_of_the_group(name: str):
    strict = compiled(rule("a", "allow", "group:leads caller", "*:*"))

    assert strict.decide(user(name), entry("crm:a"), {}).effect == "deny"
    assert not strict.is_one_of(Principal(name), ("group:leads", "caller"))


def test_approvers_are_named_by_id_group_and_everybody():
    strict = compiled(groups={"leads": ("user:berta",)})
    berta, carl = Principal("user:berta"), Principal("user:carl", groups=frozenset({"ops"}))

    assert strict.is_one_of(berta, ("group:leads",))
    assert strict.is_one_of(carl, ("group:leads", "group:ops"))
    assert strict.is_one_of(None, ("user:local",))
    assert strict.is_one_of(carl, ("*",))
    assert not strict.is_one_of(carl, ("group:leads", "user:berta"))


def test_a_lone_surrogate_fails_an_allow_condition_and_meets_a_deny_condition():
    allowing = compiled(rule("a", "allow", "*", "*:*", arguments={"n": {"maxLength": 5}}))
    denying = compiled(
        rule("a", "allow", "*", "*:*"),
        rule("d", "deny", "*", "*:*", arguments={"n": {"pattern": "^prod"}}),
    )
    arguments = {"n": "\ud800"}

    assert allowing.decide(LOCAL, entry("crm:a"), arguments).reason == "no_rule"
    assert denying.decide(LOCAL, entry("crm:a"), arguments).rule == "d"
