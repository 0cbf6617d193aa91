"""Reading the rules of a policy: what is refused, since ignoring it would permit more."""

from __future__ import annotations

from typing import Any

from interlock.config.gateway import PolicyRules
from tests.config.support import check_refusal, gateway, rule
from tests.support.rows import each_row

RULE = "policy.rules[0]"


def argument(**keywords: Any) -> dict[str, Any]:
    return rule(arguments={"path": keywords})


WRONG: list[tuple[Any, str, str]] = [
    ({"policy": None}, "policy", "must be an object, not null"),
    ({"policy": {"readonly": True}}, "policy.readonly", "is unknown (did you mean 'readOnly'?)"),
    ({"policy": {"readOnly": 1}}, "policy.readOnly", "must be true or false"),
    (rule(id=None), RULE, 'needs "id"'),
    (rule(effect=None), RULE, 'needs "effect"'),
    (rule(who=None), RULE, 'needs "who"'),
    (rule(tools=None), RULE, "needs one of tools, resources, prompts"),
    (rule(prompts=["*:*"]), RULE, "needs one of tools, resources, prompts"),
    (rule(argument={}), f"{RULE}.argument", "is unknown (did you mean 'arguments'?)"),
    (rule(id="a b"), f"{RULE}.id", "must be 1 to 64 of A-Z"),
    (
        {"policy": {"rules": rule()["policy"]["rules"] * 2}},
        "policy.rules[1].id",
        "is the id of rules[0] as well: rename one of them",
    ),
    (rule(effect="permit"), f"{RULE}.effect", "must be one of allow, ask, deny"),
    (rule(who=[]), f"{RULE}.who", "must not be empty"),
    (rule(who=["anna"]), f"{RULE}.who[0]", 'must be one of "*", "user:NAME"'),
    (rule(who=["user:*"]), f"{RULE}.who[0]", 'must be one of "*", "user:NAME"'),
    (rule(who=["group:"]), f"{RULE}.who[0]", 'must be one of "*", "user:NAME"'),
    (rule(who=["caller"]), f"{RULE}.who[0]", 'must be one of "*", "user:NAME"'),
    (rule(tools=[]), f"{RULE}.tools", "must not be empty"),
    (rule(tools=["*"]), f"{RULE}.tools[0]", 'must be "SERVER:NAME"'),
    (rule(tools=["crm:"]), f"{RULE}.tools[0]", 'must be "SERVER:NAME"'),
    (rule(risk="low"), f"{RULE}.risk", "must be one of read, write"),
    (rule(tools=None, prompts=["*:*"], risk="read"), f"{RULE}.risk", "is for tools only"),
    (
        rule(tools=None, resources=["*:*"], arguments={}),
        f"{RULE}.arguments",
        "is for tools and prompts only",
    ),
    (rule(view="support"), f"{RULE}.view", "is not a view of this file"),
    (rule(approvers=["*"]), f"{RULE}.approvers", 'is for a rule with "effect": "ask" only'),
    (rule(expires=60), f"{RULE}.expires", 'is for a rule with "effect": "ask" only'),
    (rule(effect="ask", approvers=["me"]), f"{RULE}.approvers[0]", 'one of "*", "caller"'),
    (rule(effect="ask", expires="soon"), f"{RULE}.expires", "must be a number of seconds, or"),
    (rule(record="all"), f"{RULE}.record", "must be one of hash, full, none"),
    (rule(arguments={"path": "/srv"}), f"{RULE}.arguments.path", "must be an object of JSON Sch"),
    (argument(maximun=3), f"{RULE}.arguments.path", "unknown keyword 'maximun' (did you mean 'max"),
    (argument(maximum="3"), f"{RULE}.arguments.path", "maximum: must be of type number"),
    (argument(pattern="(a"), f"{RULE}.arguments.path", "pattern: is not a regular expression"),
    (argument(pattern="(?=a)b"), f"{RULE}.arguments.path", "pattern: is not a regular expression"),
    (argument(**{"$ref": "#"}), f"{RULE}.arguments.path", "unknown keyword '$ref'"),
    (argument(under="data"), f"{RULE}.arguments.path", "under: must be an absolute path"),
    (argument(under="/a/../b"), f"{RULE}.arguments.path", "under: must be an absolute path"),
    (argument(absent="yes"), f"{RULE}.arguments.path", "absent: must be true or false"),
    (argument(maximum=3, pattern="a"), f"{RULE}.arguments.path", "has keywords of different types"),
    (argument(items={"min": 3}), f"{RULE}.arguments.path", "items: unknown keyword 'min'"),
    (rule(claims={"team": []}), f"{RULE}.claims.team", "must be an object of JSON Schema"),
]


@each_row(("section", "place", "problem"), WRONG)
def test_invalid_rule_is_refused_with_line_and_place(section: Any, place: str, problem: str):
    check_refusal(section, place, problem)


def test_empty_rules_are_kept_as_a_policy():
    assert gateway({"policy": {"rules": []}}).gateway.policy == PolicyRules()
