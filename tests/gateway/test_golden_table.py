"""Who may list, call, read and get what: a fixed table, and generated policies."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from interlock.auth.key_ring import principal_of
from interlock.auth.principal import Principal
from interlock.calls import Caller, Item
from interlock.config import loads
from interlock.config.gateway import Limits, PolicyRules, Rule, View
from interlock.config.servers import ToolRisk
from interlock.errors import UnknownTool
from interlock.gateway import ForwardingServer
from interlock.gateway.explain.explainer import Explainer, explainer_for
from interlock.gateway.explain.explanation import Explanation
from interlock.gateway.forwarding.catalogue import ToolboxCatalogue
from interlock.gateway.forwarding.forwarder import Forwarder
from interlock.gateway.forwarding.in_force import InForce
from interlock.gateway.forwarding.refusals import REASON_KEY
from interlock.gateway.forwarding.task_ids import TaskIds
from interlock.layers.limits import Limiter
from interlock.policy import Policy
from interlock.toolbox import Toolbox
from tests.gateway.conftest import offering
from tests.gateway.golden import (
    ALL,
    ARGUMENTS,
    FILE,
    NAMES,
    SERVERS,
    TABLE,
    answer,
    context_of,
    upstream,
)
from tests.gateway.support import OWN_TOOLS
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, Json, tool

HIDING = (
    *("not_in_view", "scope", "read_only", "no_rule", "denied_by_rule"),
    *("filtered", "unknown_tool"),
)


def is_refused(result: Json) -> bool:
    return "error" in result or bool(result.get("isError"))


def agrees(explained: Explanation, result: Json) -> bool:
    """Return whether an explanation is that of what a call returned."""
    if not is_refused(result):
        return explained.effect == "allow"
    stated = result.get("_meta", {}).get(REASON_KEY)
    if stated is None:  # the caller gets no reason for a tool that it may not see
        return explained.effect == "deny" and explained.reason in HIDING
    effect = "ask" if stated["code"] in ("approval_required", "approval_pending") else "deny"
    found = explained.effect, explained.reason, explained.rule
    return found == (effect, stated["code"], stated.get("rule", ""))


def is_made_or_asked(result: Json) -> bool:
    stated = result.get("_meta", {}).get(REASON_KEY, {})
    return not is_refused(result) or stated.get("code") == "approval_required"


@pytest.mark.slow("fills a database")
@each_row("revision", [LEGACY, MODERN])
async def test_golden_table_of_principals_and_tools(revision: str):
    policy = Policy.from_config(loads(msgspec.json.encode(FILE)))
    gateway = ForwardingServer({name: upstream(name) for name in SERVERS}, policy, environ={})
    explainer = Explainer(gateway, policy, Limiter(Limits()))
    async with gateway.running():
        for principal, allowed in TABLE:
            context = context_of(principal, revision)
            listed = [
                each["name"].replace("__", ":")
                for each in (await answer(gateway, context, "tools/list"))["tools"]
                if each["name"] not in OWN_TOOLS
            ]
            called = []
            for server in SERVERS:
                for name in NAMES:
                    address, caller = f"{server}:{name}", Caller(principal)
                    for given in ARGUMENTS.get(address, [{}]):
                        params = {"name": f"{server}__{name}", "arguments": given}
                        result = await answer(gateway, context, "tools/call", **params)
                        explained = explainer.explain(caller, address, given)
                        assert agrees(explained, result), (principal, address, given)
                        called += [address] * is_made_or_asked(result)
            effects = {each: found.effect for each, found in explainer.all_tools(caller)}
            shown = [each for each, effect in effects.items() if effect != "deny"]
            assert sorted(listed) == sorted({*called}) == sorted({*shown}) == sorted({*allowed})


@each_row("revision", [LEGACY, MODERN])
async def test_golden_table_of_principals_and_items(revision: str):
    policy = Policy.from_config(loads(msgspec.json.encode(FILE)))
    gateway = ForwardingServer({name: upstream(name) for name in SERVERS}, policy, environ={})
    readable = {"user:root": ["crm", "git", "docs", "lab"]}
    async with gateway.running():
        for principal, _ in TABLE:
            covered = principal.scopes & {"mcp:*", "mcp:read"} and not principal.view
            docs = readable.get(principal.id, ["docs"]) if covered else []
            if principal.scopes == {"mcp:crm:*"}:
                docs = ["crm"]
            prompts = ["git__p"] if principal.id == "user:bert" else []
            context = context_of(principal, revision)
            resources = (await answer(gateway, context, "resources/list"))["resources"]
            got = (await answer(gateway, context, "prompts/list"))["prompts"]
            read = [
                each
                for each in SERVERS
                if not is_refused(
                    await answer(gateway, context, "resources/read", uri=f"{each}://1")
                )
            ]
            used = [
                f"{each}__p"
                for each in SERVERS
                if not is_refused(await answer(gateway, context, "prompts/get", name=f"{each}__p"))
            ]

            assert [each["uri"] for each in resources] == [f"{each}://1" for each in docs]
            assert read == docs, principal
            assert [each["name"] for each in got] == used == prompts


# Generated policies


class Chance(random.Random):
    """Random rules and principals."""

    def rule(self) -> Rule:
        return Rule(
            id="r",
            effect=self.choice(["allow", "allow", "deny"]),
            who=tuple(self.some(["*", "user:anna", "user:bert", "group:dev"])),
            kind="tools",
            patterns=tuple(f"{self.choice(SERVER)}:{self.choice(TOOL)}" for _ in self.some("ab")),
            risk=self.choice([None, None, "read", "write"]),
            view=self.choice(["", "", "sales"]),
        )

    def rules(self) -> list[Rule]:
        return [self.rule() for _ in range(self.randint(0, 5))]

    def principal(self) -> Principal:
        scopes = ["mcp:*", "mcp:read", "mcp:crm:*", "mcp:git:get_*", "admin:read"]
        return Principal(
            self.choice(["user:anna", "user:bert"]),
            frozenset(self.sample(scopes, self.randint(0, 2))),
            view=self.choice(["", "", "sales"]),
        )

    def some(self, values: Sequence[str]) -> list[str]:
        return self.sample(values, self.randint(1, 2))


SERVER = ("*", "crm", "git", "c*")
TOOL = ("*", "get_*", "get_a", "*prod", "pay", "?")


def compiled(generated: list[Rule], **views: View) -> Policy:
    return Policy.compile(
        PolicyRules(rules=tuple(generated)),
        groups={"dev": ("user:bert",)},
        views={"sales": View(servers=("crm",), deny=("crm:drop_*",)), **views},
        risks=dict.fromkeys(SERVERS, ToolRisk(read=("get_*", "list_*"))),
    )


@pytest.fixture(scope="module")
def toolbox() -> Iterator[Toolbox]:
    """An open toolbox with two servers. Nothing is called, so its event loop need not run."""
    opened = Toolbox({name: upstream(name) for name in ("crm", "git")}, environ={}, forwards=True)
    with asyncio.Runner() as runner:
        runner.run(opened.open())
        yield opened
        runner.run(opened.close())


def never_called(name: str, _: Caller) -> UnknownTool:
    raise AssertionError(name)


@pytest.mark.slow("lists under 1,000 policies")
def test_every_listed_tool_can_be_called_and_no_other_one(toolbox: Toolbox):
    chance = Chance(1)
    for _ in range(1_000):
        generated, principal = chance.rules(), chance.principal()
        policy = compiled(generated)
        rules = InForce(policy)
        forwarder = Forwarder(toolbox, rules, TaskIds(None))
        catalogue = ToolboxCatalogue(toolbox, rules, forwarder, never_called)
        context = context_of(principal, MODERN)
        listed = {each.fields["name"] for each in catalogue.page("tools", "", context)[0]}

        for entry in toolbox.tools:
            found = catalogue.find("tools", entry.wire_name, context) is not None
            decision = policy.decide(Caller(principal), entry, {})
            assert (entry.wire_name in listed) is found is (decision.effect == "allow")
        theirs = listed - set(OWN_TOOLS)
        assert theirs <= {entry.wire_name for entry in toolbox.tools}
        is_denied = any(
            each.effect == "deny" and "*:*" in each.patterns and each.risk != "write"
            for each in generated
        )
        for name in OWN_TOOLS:
            found = catalogue.find("tools", name, context) is not None
            assert (name in listed) is found
            assert found is bool(theirs) or (is_denied and not found)


ITEMS = [Item("tools", server, name) for server in ("crm", "git") for name in NAMES]


def rights(policy: Policy, principal: Principal) -> set[str]:
    """Return the addresses that a principal may use."""
    caller = Caller(principal)
    return {each.address for each in ITEMS if policy.decide(caller, each, {}).effect == "allow"}


def test_rules_views_and_claims_of_other_callers_add_no_rights():
    chance = Chance(2)
    for _ in range(100):
        generated, more, principal = chance.rules(), chance.rule(), chance.principal()
        policy = compiled(generated)
        others = replace(more, who=("user:other", "group:other"))
        before = rights(policy, principal)

        assert rights(compiled([*generated, others]), principal) == before
        assert rights(compiled([*generated, replace(more, effect="deny")]), principal) <= before
        assert rights(compiled(generated, other=View(servers=("git",))), principal) == before
        # What a token says besides its groups and scopes grants nothing.
        claims = {"groups": ["dev", "other"], "scope": "mcp:*", "admin": True, "sub": "bert"}
        assert rights(policy, replace(principal, claims=claims)) == before
        if not principal.view:
            assert rights(policy, replace(principal, view="sales")) <= before | of_view(generated)
            assert rights(policy, replace(principal, view="unknown")) == set()


def of_view(generated: list[Rule]) -> set[str]:
    """Return the tools that rules for views alone allow either user in the view "sales"."""
    only = [each for each in generated if each.view]
    root = [Principal(id, ALL, view="sales") for id in ("user:anna", "user:bert")]
    return set().union(*(rights(compiled(only), each) for each in root))


# States of tools and servers

READ = {"annotations": {"readOnlyHint": True, "destructiveHint": False}}
STATES = {
    "crm:get": "",
    "crm:late": "tool_quarantined",
    "crm:broken": "tool_invalid",
    "crm:left_out": "",  # hidden by the operator, as it were absent
    "crm:absent": "",
    "crm:rare": "quota_exceeded",
    "crm:ask": "approval_pending",
    "down:x": "server_down",
    "off:x": "server_disabled",
    "users:x": "needs_login",
    "nowhere:x": "",
}


@pytest.mark.slow("fills a database")
async def test_explanation_agrees_with_the_call_in_every_state(running):
    broken = tool("broken") | {
        "inputSchema": {"type": "object", "properties": {"a": {"$ref": "x:y"}}}
    }
    names = ("get", "left_out", "rare", "ask")
    crm = offering()
    crm.answers["tools/list"] = {"tools": [*(tool(each) | READ for each in names), broken]}
    policy = [
        {"id": "ask", "effect": "ask", "who": ["*"], "tools": ["crm:ask"], "approvers": ["user:l"]},
        {"id": "all", "effect": "allow", "who": ["user:anna"], "tools": ["*:*"]},
        {"id": "read", "effect": "allow", "who": ["*"], "tools": ["*:*"], "risk": "read"},
        {"id": "none", "effect": "deny", "who": ["user:eve"], "tools": ["*:*"]},
    ]
    options = {"tools": {"risk": {"read": ["*"]}, "deny": ["left_out"]}}
    with_token = {"Authorization": "Bearer ${user:TOKEN}"}
    servers = {
        "crm": (crm, options),
        "down": {"command": "no-such-program-of-interlock"},
        "off": {"command": "x", "enabled": False},
        "users": {"url": "http://127.0.0.1:9/mcp", "sharing": "per_user", "headers": with_token},
    }
    limits = {"tools": {"crm:rare": "1/day"}}
    settings = {"policy": {"rules": policy}, "limits": limits}
    async with running(settings, **servers) as gateway:
        crm.answers["tools/list"]["tools"].append(tool("late") | READ)
        await gateway.assembly.server.toolbox.upstreams["crm"].restart()
        keys = {
            "anna": await gateway.key("anna"),
            "bert": await gateway.key("bert", "mcp:read"),
            "eve": await gateway.key("eve"),
        }
        stored = {each.user: each for each in await gateway.keys.list()}
        for user, key in keys.items():
            caller = Caller(principal_of(stored[user]), surface="mcp")
            await gateway.call("crm__rare", key)  # spends the limit of the tool
            for address, code in STATES.items():
                for given in ({}, {"amount": "a text"}):
                    reply = await gateway.call(address.replace(":", "__"), key, **given)
                    result = reply.json.get("result", reply.json)
                    explainer = await explainer_for(caller, gateway.assembly)
                    explained = await explainer.explain_call(
                        caller, address, given, key=stored[user]
                    )
                    assert agrees(explained, result), (user, address, explained, result)
                    if user == "anna":
                        assert result.get("_meta", {}).get(REASON_KEY, {}).get("code", "") == code
