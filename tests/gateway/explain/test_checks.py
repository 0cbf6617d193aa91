"""The checks of a call: keys, views, obstacles and limits."""

from __future__ import annotations

from typing import Any

from interlock.auth.principal import Principal
from interlock.auth.stored_key import StoredKey
from interlock.calls import Caller
from interlock.config import loads
from interlock.config.gateway import KeyLimits, Limits, Rate
from tests.gateway.explained import ALL, ANNA, crm, explaining, facts, policy_of, verdicts
from tests.gateway.golden import answer, context_of
from tests.support.rows import each_row
from tests.support.scripted_server import MODERN, Json


@each_row(
    ("key", "reason"),
    [
        ({"revoked": 1}, "key_revoked"),
        ({"expires": 1}, "key_expired"),
        ({"expires": 1, "replaced_by": "k2"}, "key_expired"),
        ({"scopes": ("admin:read",)}, "insufficient_scope"),
    ],
)
async def test_explanation_of_an_unusable_key_stops_at_the_key(key: dict[str, Any], reason: str):
    stored = StoredKey("k", b"", "anna", **{"scopes": ("mcp:*",), **key})
    async with explaining(policy_of()) as (_, explainer, _):
        explained = explainer.explain(Caller(ANNA), "crm:pay", {}, key=stored)

    first, *others = verdicts(explained).values()
    assert (explained.effect, explained.reason, first) == ("deny", reason, "deny")
    assert {*others} == {"not_reached"}


@each_row(
    ("view", "address", "fact"),
    [
        ("", "crm:get_a", None),
        ("s", "crm:get_a", "found by search in view s; called with call_read_tool"),
        ("s", "crm:pay", "listed in view s"),
        ("s", "crm:absent", None),
    ],
)
async def test_explanation_states_how_a_client_of_a_search_view_gets_to_know_a_tool(
    view: str, address: str, fact: str | None
):
    search = {"always": ["crm:pay"]}
    policy = policy_of(views={"s": {"toolSearch": search}})
    async with explaining(policy) as (_, explainer, _):
        explained = explainer.explain(Caller(Principal("user:anna", ALL, view=view)), address)

    assert facts(explained).get("listed") == fact


async def test_a_key_bound_to_another_view_is_denied_in_this_view():
    policy = policy_of(views={"a": {}, "b": {}})
    key = StoredKey("k", b"", "anna", scopes=("mcp:*",), view="b")
    caller = Caller(Principal("user:anna", ALL, view="a"))
    async with explaining(policy) as (_, explainer, _):
        explained = explainer.explain(caller, "crm:pay", key=key)

    assert explained.reason == "not_in_view"
    assert facts(explained)["view"] == "the key is bound to view b"


@each_row(
    ("address", "arguments", "reason", "fact", "change"),
    [
        ("crm:pya", {}, "unknown_tool", "the server lists no tool 'pya'", "did you mean pay?"),
        ("cmr:pay", {}, "unknown_tool", "no server 'cmr' in the configuration", "did you mean crm"),
        ("zebra:x", {}, "unknown_tool", "no server 'zebra' in the configuration", ""),
        ("crm:broken", {}, "tool_invalid", "schema must say", ""),
        ("crm:pay", {"amount": "secret"}, "arguments_invalid", "amount", ""),
        ("git:x", {}, "server_down", "git: failed", ""),
        ("off:x", {}, "server_disabled", "off: disabled", ""),
    ],
)
async def test_explanation_of_an_unusable_tool_names_the_obstacle(
    address: str, arguments: Json, reason: str, fact: str, change: str
):
    config = loads(
        b'{"mcpServers": {"git": {"command": "no-such-program-7d2f"},'
        b' "off": {"command": "x", "enabled": false}}}'
    )
    servers = {"crm": crm(), **config.servers}
    async with explaining(policy_of(), **servers) as (_, explainer, _):
        explained = explainer.explain(Caller(ANNA), address, arguments)

    assert (explained.effect, explained.reason) == ("deny", reason)
    assert explained.decisive is not None
    assert fact in explained.decisive.detail
    assert change in explained.decisive.change
    assert "secret" not in str(explained)


async def test_explained_limits_are_not_counted():
    limits = Limits(
        per_key=KeyLimits(rate=Rate(100, 1), per_day=50), tools={"crm:*": Rate(1, 3_600)}
    )
    async with explaining(policy_of(), limits) as (gateway, explainer, _):
        before = [explainer.explain(Caller(ANNA), "crm:pay", {}) for _ in range(3)]
        await answer(gateway, context_of(ANNA, MODERN), "tools/call", name="crm__pay")
        after = explainer.explain(Caller(ANNA), "crm:pay", {})

    assert {each.effect for each in before} == {"allow"}
    assert facts(before[0])["limits"] == "100/s with this key; 50 calls a day; 1/h of crm:*"
    assert (after.effect, after.reason) == ("deny", "tool_rate_limited")
    assert after.change.startswith("wait ")
