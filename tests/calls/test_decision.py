"""Explanations of decisions."""

from __future__ import annotations

from typing import Any

from interlock.policy.rights import MAX_SHOWN
from tests.policy.support import GOLDEN, compiled, entry, rule, tool, user
from tests.support.rows import each_row


def test_steps_name_the_keyword_that_failed_and_the_rules_that_do_not_hold():
    caller = user("user:anna", "mcp:read")
    arguments = {"amount": 80}
    steps = GOLDEN.steps(caller, tool("crm:refund"), arguments)

    assert [(step.step, step.verdict, step.detail) for step in steps] == [
        ("view", "ok", "all tools"),
        ("scope", "deny", "mcp:read covers tools of risk read; this one is write"),
        (
            "policy",
            "ask",
            "rule refunds, group:leads must approve; "
            "rule small-refunds does not hold: amount is over its maximum",
        ),
    ]
    fact = next(each for each in steps[-1].rules if each.rule == "small-refunds")
    assert (fact.failed, fact.name, fact.keyword) == ("arguments", "amount", "maximum")


@each_row(
    ("address", "arguments", "detail"),
    [
        ("crm:refund", {}, "rule small-refunds does not hold: amount is missing"),
        ("crm:refund", {"amount": "5"}, "small-refunds does not hold: amount has another type"),
        ("crm:refund", None, "rule small-refunds depends on the arguments"),
        ("crm:update_order", {}, "rule finance does not hold: claim department is missing"),
        ("time:set_zone", {}, "rule kiosk does not hold: it is for another view"),
    ],
)
def test_rule_that_does_not_match_states_the_reason(address: str, arguments: Any, detail: str):
    steps = GOLDEN.steps(user("user:anna"), tool(address), arguments)

    assert detail in steps[-1].detail


def test_no_value_appears_in_a_decision():
    strict = compiled(
        rule("a", "deny", "*", "*:*", arguments={"a": {"const": "canary-1"}}),
        rule("b", "ask", "*", "*:*", arguments={"b": {"pattern": "canary-2"}}),
        rule("c", "allow", "*", "*:*", claims={"c": {"enum": ["canary-3"]}}),
    )
    caller = user("user:anna", claims={"c": "canary-4"})
    for arguments in ({}, {"a": "canary-5", "b": "canary-6"}, {"a": ["canary-7"]}):
        decision = strict.decide(caller, entry("crm:a"), arguments)
        assert "canary" not in repr(decision) + str(decision) + repr(
            strict.steps(caller, entry("crm:a"), arguments)
        )


def test_number_of_failed_rules_in_an_explanation_is_limited():
    many = compiled(*(rule(f"r{i}", "allow", "user:b", "*:*") for i in range(50)))
    (*_, step) = many.steps(user("user:a"), entry("crm:a"), {})

    assert len(step.rules) == 50
    assert step.detail.count("does not hold") == MAX_SHOWN
