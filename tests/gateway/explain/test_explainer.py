"""Explanations of calls: the same effect, reason and rule as the call, and what would change it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.auth.key_ring import principal_of
from interlock.auth.principal import Principal
from interlock.auth.stored_key import StoredKey
from interlock.calls import Caller
from interlock.config import PythonServer, ToolFilter
from interlock.config.gateway import Limits, PolicyRules, Rule
from interlock.gateway import ForwardingServer
from interlock.gateway.explain.explainer import Explainer, explainer_for
from interlock.layers.limits import Limiter
from interlock.policy import Policy
from interlock.schema import condition
from tests.gateway.conftest import offering
from tests.gateway.explained import ALL, ANNA, RULES, crm, explaining, facts, policy_of, verdicts
from tests.support.rows import each_row
from tests.support.scripted_server import Json


@each_row(
    ("scopes", "arguments", "uncertain"),
    [
        (("mcp:*",), None, True),
        (("mcp:*",), {"amount": 80}, False),
        (("mcp:read",), None, False),  # denied, whatever the arguments are
    ],
)
async def test_explanation_states_whether_it_depends_on_missing_arguments(
    scopes: tuple[str, ...], arguments: dict[str, int] | None, uncertain: bool
):
    caller = Caller(Principal("user:anna", frozenset(scopes)))
    async with explaining(policy_of(policy={"rules": RULES})) as (_, explainer, _):
        explained = explainer.explain(caller, "crm:pay", arguments)

    assert explained.as_json().get("uncertain", False) is uncertain


async def test_denied_call_shows_every_check_and_the_remedy_for_the_first_denial():
    reader = Principal("user:anna", frozenset({"mcp:read"}), key_id="k")
    key = StoredKey("k", b"", "anna", scopes=("mcp:read",), expires=4_000_000_000_000_000)
    async with explaining(policy_of(policy={"rules": RULES})) as (_, explainer, _):
        explained = explainer.explain(Caller(reader), "crm:pay", {"amount": 80}, key=key)

    assert explained.as_json() == {
        "effect": "deny",
        "reason": "scope",
        "steps": [
            {"step": "key", "verdict": "ok", "detail": "active until 2096-10-02"},
            {"step": "view", "verdict": "ok", "detail": "all tools"},
            {"step": "server", "verdict": "ok", "detail": "crm: ok, 2 tools"},
            {"step": "definition", "verdict": "ok", "detail": "accepted"},
            {"step": "arguments", "verdict": "ok", "detail": "they fit the schema"},
            {
                "step": "scope",
                "verdict": "deny",
                "detail": "mcp:read covers tools of risk read; this one is write",
            },
            {
                "step": "policy",
                "verdict": "ask",
                "detail": "rule large, group:leads must approve;"
                " rule small does not hold: amount is over its maximum",
            },
            {"step": "limits", "verdict": "not_reached", "detail": ""},
        ],
        "change": "create a key with --scope mcp:crm:pay or --scope mcp:*;"
        " if the tool only reads, add pay to tools.risk.read of crm",
    }


async def test_tools_that_the_operator_left_out_or_that_clash_are_in_the_list_with_their_reason():
    policy = policy_of(views={"plain": {"names": "plain"}})
    caller = Caller(Principal("user:anna", ALL, view="plain"))
    filtered = PythonServer(
        object="tests.gateway.explained:SERVER", tools=ToolFilter(deny=("get_*",))
    )
    async with explaining(policy, crm=crm(), git=filtered) as (_, explainer, _):
        found = {address: each.reason for address, each in explainer.all_tools(caller)}

    assert found == {
        "crm:pay": "",
        "crm:get_a": "",
        "crm:broken": "tool_invalid",
        "git:pay": "name_clash",
        "git:get_a": "filtered",
        "git:broken": "tool_invalid",
    }


async def test_read_result_tool_is_explained_as_a_tool_of_the_gateway():
    async with explaining(policy_of(policy={"rules": RULES})) as (_, explainer, _):
        explained = explainer.explain(Caller(ANNA), "interlock:read_result", {"id": "r_0"})
        missing = explainer.explain(Caller(ANNA), "interlock:other")

    assert (explained.effect, explained.state) == ("allow", "ok")
    assert facts(explained)["server"] == "interlock: a tool of the gateway itself"
    assert missing.reason == "unknown_tool"


@pytest.mark.slow("fills a database")
async def test_an_explanation_follows_the_approval_of_exactly_this_call(running):
    rule = {"id": "ask", "effect": "ask", "who": ["*"], "tools": ["s:put"]}
    settings = {
        "policy": {"rules": [rule | {"approvers": ["group:leads"]}]},
        "groups": {"leads": ["user:berta"]},
    }
    async with running(settings, s=offering("put")) as gateway:
        key = await gateway.key("anna")
        (stored,) = await gateway.keys.list()
        caller = Caller(principal_of(stored), surface="mcp")
        approvals = gateway.assembly.services.approvals

        async def explained(**arguments: Any) -> tuple[str, str, str]:
            explainer = await explainer_for(caller, gateway.assembly)
            found = await explainer.explain_call(caller, "s:put", arguments, key=stored)
            return found.effect, found.reason, verdicts(found)["approval"]

        seen = [await explained(a=1)]
        await gateway.call("s__put", key, a=1)
        seen += [await explained(a=1), await explained(a=2)]
        (pending,) = await approvals.list(["pending"])
        await approvals.approve(pending.id, pending.hash, None)
        seen.append(await explained(a=1))
        assert (await gateway.call("s__put", key, a=1)).text == "done"
        seen.append(await explained(a=1))

    assert seen == [
        ("ask", "approval_required", "ask"),
        ("ask", "approval_pending", "ask"),
        ("ask", "approval_required", "ask"),
        ("allow", "", "ok"),
        ("ask", "approval_required", "ask"),
    ]


# Agreement with the call

conditions = st.sampled_from(
    [{}, {"amount": {"maximum": 50}}, {"amount": {"minimum": 50}}, {"amount": {"const": 7}}]
).map(lambda each: {name: condition.compile(value) for name, value in each.items()})
rules = st.builds(
    lambda number, **members: Rule(id=f"r{number}", kind="tools", **members),
    number=st.integers(0, 99),
    effect=st.sampled_from(["allow", "allow", "ask", "deny"]),
    who=st.sampled_from([("*",), ("user:anna",), ("user:bert",)]),
    patterns=st.sampled_from([("*:*",), ("crm:pay",), ("crm:get_*",)]),
    risk=st.sampled_from([None, None, "read", "write"]),
    arguments=conditions,
)
principals = st.builds(
    Principal,
    id=st.sampled_from(["user:anna", "user:bert"]),
    scopes=st.sampled_from([ALL, frozenset({"mcp:read"}), frozenset({"mcp:crm:pay"})]),
)


@pytest.fixture(scope="module")
def opened() -> Iterator[ForwardingServer]:
    """A gateway with an open toolbox. Nothing is called, so its event loop need not run."""
    gateway = ForwardingServer({"crm": crm()}, policy_of(), environ={})
    with asyncio.Runner() as runner:
        runner.run(gateway.toolbox.open())
        yield gateway
        runner.run(gateway.toolbox.close())


@pytest.mark.slow("tries many examples")
@settings(max_examples=100)
@given(
    generated=st.lists(rules, max_size=4),
    read_only=st.booleans(),
    principal=principals,
    arguments=st.sampled_from([{}, {"amount": 7}, {"amount": 50}, {"amount": 80}]),
)
def test_an_explanation_agrees_with_the_decision_about_the_call(
    opened: ForwardingServer,
    generated: list[Rule],
    read_only: bool,
    principal: Principal,
    arguments: Json,
):
    policy = Policy.compile(PolicyRules(rules=tuple(generated), read_only=read_only))
    explainer = Explainer(opened, policy, Limiter(Limits()))
    caller = Caller(principal)

    for entry in opened.toolbox.tools:
        decision = policy.decide(caller, entry, arguments)
        explained = explainer.explain(caller, entry.address, arguments)
        assert (explained.effect, explained.reason, explained.rule) == (
            decision.effect,
            decision.reason,
            decision.rule,
        )
