"""Decisions: a table written by hand, and properties against a second implementation."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import config
from interlock.auth import Principal
from interlock.calls import LOCAL, Caller, Entry
from interlock.config.gateway import Effect, PolicyRules, Rule, View
from interlock.config.servers import ToolRisk
from interlock.policy import Decision, Item, Policy, opens_any, policy
from interlock.policy.rights import MAX_SHOWN
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


# The golden table

SERVERS = {
    "crm": "get_customer list_customers search_orders "
    "refund delete_customer update_order note close",
    "git": "get_repo list_repos search_code create_issue merge_pull delete_repo push fork",
    "fs": "get_info list_files search_files write_file delete_file move_file chmod read_file",
    "time": "get_time list_zones search_zone set_zone start stop convert reset",
    "ops": "get_status list_nodes search_logs deploy restart scale drain destroy",
}
TOOLS = [f"{server}:{tool}" for server, tools in SERVERS.items() for tool in tools.split()]
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
DEV, LEADS = frozenset({"dev"}), frozenset({"leads"})

# a allow, k ask, d denied by a rule, n no rule, s scope, v not in the view; A and K depend on the
# arguments. In the order of TOOLS, a word a server. `ops:search_logs` has a destructive hint.
TABLE: list[tuple[Caller, str]] = [
    (user("user:anna"), "aaaAdnnn aaanndnn aaandnnn aaannnnn AAnnnnnd"),
    (user("user:berta"), "aaaadaaa aaaaadaa aaaadaaa aaaaaaaa AAAAAAAd"),
    (user("user:carl", groups=DEV), "aaandnnn aaaAAdAA aaaAdAAA aaannnnn AAnnnnnd"),
    (user("user:dora", "mcp:read", groups=DEV), "aaasssss aaasssss aaasssss aaasssss AAssssss"),
    (
        user("user:emil", "mcp:git:* mcp:fs:get_* admin:write", groups=DEV),
        "ssssssss aaaAAdAA asssssss ssssssss ssssssss",
    ),
    (
        user("https://id.example#4711", claims={"department": "finance"}),
        "aaaAdann aaanndnn aaandnnn aaannnnn AAnnnnnd",
    ),
    (
        user("user:fritz", groups=frozenset({"ops"})),
        "aaandnnn aaanndnn aaandnnn aaannnnn KKKKKKKd",
    ),
    (
        user("user:gina", groups=LEADS | {"contractors"}),
        "dddddddd aaaaadaa aaaadaaa aaaaaaaa AAAAAAAd",
    ),
    (
        user("user:hugo", groups=LEADS, view="kiosk"),
        "aaavdaaa vvvvvvvv vvvvvvvv aaaaaaaa vvvvvvvv",
    ),
    (user("user:ivan", view="kiosk"), "aaavdnnn vvvvvvvv vvvvvvvv aaaannnn vvvvvvvv"),
    (user("user:root", "admin:write admin:read"), "ssssssss ssssssss ssssssss ssssssss ssssssss"),
    (LOCAL, "aaandnnn aaanndnn aaandnnn aaannnnn AAnnnnnd"),
]
LETTERS = {
    "": "a",
    "approval_required": "k",
    "denied_by_rule": "d",
    "no_rule": "n",
    "scope": "s",
    "not_in_view": "v",
}


def tool(address: str) -> Entry:
    return entry(address, destructive_hint=True) if address == "ops:search_logs" else entry(address)


def letter(decision: Decision) -> str:
    letter = LETTERS[decision.reason]
    return letter.upper() if decision.is_uncertain else letter


@pytest.mark.parametrize(("caller", "row"), TABLE)
def test_golden_table_of_lists(caller: Caller, row: str):
    assert len(TOOLS) == 40
    assert len(TABLE) == 12
    found = "".join(letter(GOLDEN.decide(caller, tool(each))) for each in TOOLS)

    assert found == row.replace(" ", "")


@pytest.mark.parametrize(("caller", "row"), TABLE)
def test_golden_table_agrees_with_calls_and_explanations(caller: Caller, row: str):
    for address, expected in zip(TOOLS, row.replace(" ", ""), strict=True):
        decision = GOLDEN.decide(caller, tool(address), {})
        if expected.islower():
            assert letter(decision) == expected, address
        check_steps(decision, {})
        check_steps(GOLDEN.decide(caller, tool(address)))


@pytest.mark.parametrize(
    ("name", "address", "arguments", "effect", "reason", "rule"),
    [
        ("user:anna", "crm:refund", {"amount": 50}, "allow", "", "small-refunds"),
        ("user:anna", "crm:refund", {"amount": 51}, "ask", "approval_required", "refunds"),
        ("user:anna", "crm:refund", {"amount": "51"}, "deny", "no_rule", ""),
        ("user:anna", "crm:refund", {}, "deny", "no_rule", ""),
        ("user:berta", "crm:refund", {"amount": 51}, "allow", "", "leads"),
        ("user:berta", "ops:deploy", {"env": "dev"}, "allow", "", "leads"),
        ("user:berta", "ops:deploy", {}, "allow", "", "leads"),
        ("user:berta", "ops:deploy", {"env": "prod"}, "deny", "denied_by_rule", "never-prod"),
        ("user:berta", "ops:deploy", {"env": ["prod"]}, "deny", "denied_by_rule", "never-prod"),
        ("user:berta", "ops:destroy", {}, "deny", "denied_by_rule", "no-destroy"),
    ],
)
def test_decide_with_arguments_names_the_rule(
    name: str, address: str, arguments: dict[str, Any], effect: str, reason: str, rule: str
):
    decision = GOLDEN.decide(user(name), tool(address), arguments)

    assert (decision.effect, decision.reason, decision.rule) == (effect, reason, rule)
    assert not decision.is_uncertain
    check_steps(decision, arguments)


def test_a_question_has_the_approvers_expiry_and_record_of_its_rule():
    decision = GOLDEN.decide(user("user:anna"), tool("crm:refund"), {"amount": 51})

    assert decision.approvers == ("group:leads",)
    assert (decision.expires, decision.record) == (900.0, "full")


# Explaining


def check_steps(decision: Decision, arguments: dict[str, Any] | None = None) -> None:
    """The steps must lead to the decision."""
    steps = decision.steps(arguments)
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


def test_steps_name_the_keyword_that_failed_and_the_rules_that_do_not_hold():
    caller = user("user:anna", "mcp:read")
    arguments = {"amount": 80}
    steps = GOLDEN.decide(caller, tool("crm:refund"), arguments).steps(arguments)

    assert [(step.step, step.verdict, step.detail) for step in steps] == [
        ("view", "ok", "all tools"),
        ("scope", "deny", "mcp:read does not cover this tool of risk write"),
        (
            "policy",
            "ask",
            "rule refunds, group:leads must approve; "
            "rule small-refunds does not hold: amount is over its maximum; "
            "rule everybody-reads does not hold: it is for tools of another risk; "
            "rule leads does not hold: it is for other callers",
        ),
    ]
    fact = next(each for each in steps[-1].rules if each.rule == "small-refunds")
    assert (fact.failed, fact.name, fact.keyword) == ("arguments", "amount", "maximum")


@pytest.mark.parametrize(
    ("address", "arguments", "detail"),
    [
        ("crm:refund", {}, "rule small-refunds does not hold: amount is missing"),
        ("crm:refund", {"amount": "5"}, "small-refunds does not hold: amount has another type"),
        ("crm:refund", None, "rule small-refunds depends on the arguments"),
        ("crm:update_order", {}, "rule finance does not hold: claim department is missing"),
        ("time:set_zone", {}, "rule kiosk does not hold: it is for another view"),
    ],
)
def test_a_rule_that_does_not_hold_says_why(address: str, arguments: Any, detail: str):
    decision = GOLDEN.decide(user("user:anna"), tool(address), arguments)

    assert detail in decision.steps(arguments)[-1].detail


def test_no_value_appears_in_a_decision():
    strict = compiled(
        rule("a", "deny", "*", "*:*", arguments={"a": {"const": "canary-1"}}),
        rule("b", "ask", "*", "*:*", arguments={"b": {"pattern": "canary-2"}}),
        rule("c", "allow", "*", "*:*", claims={"c": {"enum": ["canary-3"]}}),
    )
    caller = user("user:anna", claims={"c": "canary-4"})
    for arguments in ({}, {"a": "canary-5", "b": "canary-6"}, {"a": ["canary-7"]}):
        decision = strict.decide(caller, entry("crm:a"), arguments)
        assert "canary" not in repr(decision) + str(decision) + repr(decision.steps(arguments))


def test_number_of_rules_shown_that_do_not_hold_is_limited():
    many = compiled(*(rule(f"r{i}", "allow", "user:b", "*:*") for i in range(50)))
    (*_, step) = many.decide(user("user:a"), entry("crm:a"), {}).steps({})

    assert len(step.rules) == 50
    assert step.detail.count("does not hold") == MAX_SHOWN


# Rules


def test_without_a_policy_scopes_decide():
    open_policy = Policy.compile(None, risks={"crm": ToolRisk(read=("get",))})

    assert open_policy.decide(user("a", "mcp:read"), entry("crm:get"), {}).effect == "allow"
    assert open_policy.decide(user("a", "mcp:read"), entry("crm:put"), {}).reason == "scope"
    assert open_policy.decide(LOCAL, entry("crm:put"), {}).effect == "allow"


def test_an_empty_policy_denies_everything():
    assert compiled().decide(LOCAL, entry("crm:get"), {}).reason == "no_rule"


def test_a_read_only_policy_denies_what_may_write():
    read_only = compiled(
        rule("all", "allow", "*", "*:*"), read_only=True, risks={"crm": ToolRisk(read=("get",))}
    )

    assert read_only.decide(LOCAL, entry("crm:get"), {}).effect == "allow"
    decision = read_only.decide(LOCAL, entry("crm:put"), {})
    assert decision.reason == "read_only"
    check_steps(decision, {})


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
def test_scopes_cover_tools(scopes: str, allowed: str):
    every = Policy.compile(None, risks=dict.fromkeys(("crm", "git"), ToolRisk(read=("get",))))
    addresses = ["crm:get", "crm:put", "git:get"]
    caller = user("a", scopes)

    found = [each for each in addresses if every.decide(caller, entry(each)).effect == "allow"]

    assert found == allowed.split()


@pytest.mark.parametrize(
    ("scopes", "opens"), [(["mcp:read"], True), (["admin:write"], False), ([], False)]
)
def test_scopes_open_the_endpoint_if_one_is_for_tools(scopes: list[str], opens: bool):
    assert opens_any(scopes) == opens


def test_the_server_of_a_pattern_ends_at_the_first_colon():
    strict = compiled(rule("a", "allow", "*", "*:delete"))

    assert strict.decide(LOCAL, entry("crm:delete"), {}).effect == "allow"
    assert strict.decide(LOCAL, entry("crm:notes:delete"), {}).reason == "no_rule"


def test_resources_and_prompts_have_rules_of_their_own():
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
    check_steps(strict.decide(LOCAL, docs))
    check_steps(strict.decide(LOCAL, review, {}), {})


def test_an_unknown_view_has_nothing():
    assert compiled().decide(user("a", view="gone"), entry("crm:a")).reason == "not_in_view"


def test_an_ask_rule_for_approvers_precedes_one_for_the_caller():
    rules = [
        rule("a", "ask", "*", "*:*"),
        rule("b", "ask", "*", "*:*", approvers=("group:leads",)),
        rule("c", "ask", "*", "*:*", approvers=("*",)),
    ]
    for order in (rules, rules[::-1]):
        assert compiled(*order).decide(LOCAL, entry("crm:a"), {}).rule == "b"


def test_an_argument_may_be_absent_if_the_condition_says_so():
    strict = compiled(
        rule("a", "allow", "*", "*:*", arguments={"n": {"maximum": 5, "absent": True}})
    )

    assert strict.decide(LOCAL, entry("crm:a"), {}).effect == "allow"
    assert strict.decide(LOCAL, entry("crm:a"), {"n": 5}).effect == "allow"
    assert strict.decide(LOCAL, entry("crm:a"), {"n": 6}).effect == "deny"
    assert strict.decide(LOCAL, entry("crm:a"), {"n": None}).effect == "deny"


@pytest.mark.parametrize("part", ["arguments", "claims"])
def test_a_condition_on_a_name_without_characters_counts(part: str):
    strict = compiled(rule("a", "allow", "*", "*:*", **{part: {"": {"const": 1}}}))

    for value, effect in ((1, "allow"), (2, "deny")):
        values = {"": value}
        caller = user("a", claims=values)
        decision = strict.decide(caller, entry("crm:a"), values)
        assert decision.effect == effect
        check_steps(decision, values)


@pytest.mark.parametrize("name", ["group:leads", "caller", "*"])
def test_a_principal_named_like_a_group_is_not_in_it(name: str):
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


# What is remembered


def test_a_changed_definition_is_decided_again():
    strict = compiled(
        rule("a", "allow", "*", "*:*", risk="read"), risks={"crm": ToolRisk(read=("*",))}
    )
    caller = user("a")

    assert strict.decide(caller, entry("crm:a")).effect == "allow"
    assert strict.decide(caller, entry("crm:a", destructive_hint=True)).effect == "deny"
    assert strict.decide(caller, entry("crm:a")).effect == "allow"


def test_callers_with_one_id_have_rights_of_their_own():
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


def test_the_hash_changes_with_whatever_changes_a_decision():
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


def test_from_config_knows_servers_by_their_names_in_addresses():
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


# Properties

ADDRESSES = ["crm:get", "crm:put", "git:get", "git:put"]
IDS = ["user:a", "user:b", "https://i#c"]
RISKS = dict.fromkeys(("crm", "git"), ToolRisk(read=("get",)))
VIEWS = {"v": View(servers=("crm",)), "w": View(deny=("*:put",))}
GROUPS = {"f": ("user:a",)}
RANKS = {"deny": 0, "ask": 1, "allow": 2}
CONDITIONS = st.sampled_from(
    [{"maximum": 1}, {"const": "x"}, {"pattern": "x", "absent": True}, {"type": "null"}, {}]
)
TABLES = st.dictionaries(st.sampled_from("mn"), CONDITIONS, max_size=2)
RULE_PARTS = st.fixed_dictionaries(
    {
        "effect": st.sampled_from(["allow", "allow", "ask", "deny"]),
        "who": st.sampled_from(["*", "user:a", "group:f", "group:g", "user:b https://i#c"]),
        "patterns": st.sampled_from(["*:*", "crm:*", "*:put", "git:get crm:put"]),
        "risk": st.sampled_from([None, None, "read", "write"]),
        "view": st.sampled_from(["", "", "v"]),
        "arguments": TABLES,
        "claims": st.just({}) | TABLES,
    }
)
RULES = st.lists(RULE_PARTS, max_size=6).map(
    lambda parts: [rule(f"r{index}", **each) for index, each in enumerate(parts)]
)
VALUES = st.sampled_from([0, 5, "x", "y", None, ["x"], "\ud800"])
ARGUMENTS = st.dictionaries(st.sampled_from("mn"), VALUES, max_size=2)
PRINCIPALS = st.builds(
    Principal,
    id=st.sampled_from(IDS),
    scopes=st.sets(
        st.sampled_from(["mcp:*", "mcp:*", "mcp:read", "mcp:crm:*", "mcp:git:p*", "admin:write"])
    ).map(frozenset),
    claims=ARGUMENTS,
    groups=st.sets(st.sampled_from("gh")).map(frozenset),
    view=st.sampled_from(["", "", "v", "w", "gone"]),
)


def everything(rules: list[Rule]) -> Policy:
    return compiled(*rules, groups=GROUPS, views=VIEWS, risks=RISKS)


def naive(rules: list[Rule], principal: Principal, address: str, arguments: Any) -> str:
    """Decide without tables, remembering or order."""
    server, _, name = address.partition(":")
    view = VIEWS.get(principal.view)
    if principal.view == "gone" or (view is VIEWS["v"] and server != "crm"):
        return "deny"
    if view is VIEWS["w"] and name == "put":
        return "deny"
    scopes = principal.scopes
    if not (
        "mcp:*" in scopes
        or ("mcp:read" in scopes and name == "get")
        or ("mcp:crm:*" in scopes and server == "crm")
        or ("mcp:git:p*" in scopes and address == "git:put")
    ):
        return "deny"
    who = {"*", principal.id} | {f"group:{each}" for each in principal.groups}
    if principal.id == "user:a":
        who.add("group:f")
    covered = {
        "*:*": set(ADDRESSES),
        "crm:*": {"crm:get", "crm:put"},
        "*:put": {"crm:put", "git:put"},
    }
    effects = {
        each.effect
        for each in rules
        if who & set(each.who)
        and any(address in covered.get(pattern, {pattern}) for pattern in each.patterns)
        and each.risk in (None, "read" if name == "get" else "write")
        and each.view in ("", principal.view)
        and all_hold(each.effect, each.claims, principal.claims)
        and all_hold(each.effect, each.arguments, arguments)
    }
    return next((each for each in ("deny", "ask", "allow") if each in effects), "deny")


def all_hold(effect: str, conditions: Any, values: Any) -> bool:
    for name, each in conditions.items():
        if name not in values:
            if not each.accepts_absence:
                return False
        elif not (each.may_hold if effect == "deny" else each.holds)(values[name]):
            return False
    return True


def outcome(decision: Decision) -> tuple[str, str, str]:
    return decision.effect, decision.reason, decision.rule


@given(RULES, PRINCIPALS, ARGUMENTS)
def test_decisions_agree_with_a_naive_implementation(
    rules: list[Rule], principal: Principal, arguments: dict[str, Any]
):
    strict, caller = everything(rules), Caller(principal)
    for address in ADDRESSES:
        decision = strict.decide(caller, entry(address), arguments)
        assert decision.effect == naive(rules, principal, address, arguments)
        check_steps(decision, arguments)
        check_steps(strict.decide(caller, entry(address)))


@given(st.data(), RULES, PRINCIPALS, ARGUMENTS)
def test_the_order_of_rules_changes_nothing(
    data: st.DataObject, rules: list[Rule], principal: Principal, arguments: dict[str, Any]
):
    one, other = everything(rules), everything(data.draw(st.permutations(rules)))
    for address in ADDRESSES:
        for given_arguments in (None, arguments):
            assert outcome(one.decide(Caller(principal), entry(address), given_arguments)) == (
                outcome(other.decide(Caller(principal), entry(address), given_arguments))
            )


@given(RULES, PRINCIPALS, st.lists(ARGUMENTS, min_size=1, max_size=5))
def test_listed_effect_is_never_stricter_than_that_of_a_call(
    rules: list[Rule], principal: Principal, calls: list[dict[str, Any]]
):
    strict, caller = everything(rules), Caller(principal)
    for address in ADDRESSES:
        listed = strict.decide(caller, entry(address))
        effects = [strict.decide(caller, entry(address), each).effect for each in calls]
        if listed.effect == "deny":
            assert set(effects) == {"deny"}
        elif not listed.is_uncertain:
            assert set(effects) == {listed.effect}
        assert all(RANKS[each] <= RANKS[listed.effect] for each in effects)


def ranks(policy: Policy, principal: Principal, arguments: Any) -> list[int]:
    caller = Caller(principal)
    return [RANKS[policy.decide(caller, entry(each), arguments).effect] for each in ADDRESSES]


def never_widens(before: list[int], after: list[int]) -> bool:
    return all(new <= old for old, new in zip(before, after, strict=True))


@given(RULES, RULE_PARTS, PRINCIPALS, st.none() | ARGUMENTS)
def test_a_denial_is_never_overruled_and_rules_of_others_change_nothing(
    rules: list[Rule], parts: dict[str, Any], principal: Principal, arguments: Any
):
    before = ranks(everything(rules), principal, arguments)
    denial = rule("z", **{**parts, "effect": "deny"})
    foreign = rule("z", **{**parts, "who": "user:z group:z"})

    assert never_widens(before, ranks(everything([*rules, denial]), principal, arguments))
    assert before == ranks(everything([*rules, foreign]), principal, arguments)


@given(RULES, PRINCIPALS, st.none() | ARGUMENTS, st.sampled_from(["v", "w", "gone"]))
def test_a_view_fewer_scopes_and_unnamed_claims_never_widen(
    rules: list[Rule], principal: Principal, arguments: Any, view: str
):
    rules = [msgspec.structs.replace(each, view="") for each in rules]
    strict = everything(rules)
    before = ranks(strict, msgspec.structs.replace(principal, view=""), arguments)

    viewed = msgspec.structs.replace(principal, view=view)
    assert never_widens(before, ranks(strict, viewed, arguments))
    scoped = msgspec.structs.replace(principal, view="", scopes=frozenset({"mcp:read"}))
    if principal.scopes & {"mcp:*", "mcp:read"}:
        assert never_widens(before, ranks(strict, scoped, arguments))
    claimed = msgspec.structs.replace(
        principal, view="", claims={**principal.claims, "groups": ["f", "g"], "scope": "mcp:*"}
    )
    assert before == ranks(strict, claimed, arguments)


@given(RULES, PRINCIPALS, st.none() | ARGUMENTS)
def test_a_read_only_policy_never_widens(rules: list[Rule], principal: Principal, arguments: Any):
    read_only = compiled(*rules, read_only=True, groups=GROUPS, views=VIEWS, risks=RISKS)

    assert never_widens(
        ranks(everything(rules), principal, arguments), ranks(read_only, principal, arguments)
    )
