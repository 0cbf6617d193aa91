"""The inspector in front of a gateway: rights, policy, approvals, audit."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.gateway.conftest import offering, running
from tests.support.scripted_server import tool
from tests.web.inspecting import ADMIN, Inspecting, Json, begun

__all__ = ["running"]
pytestmark = pytest.mark.slow


async def test_call_by_hand_passes_the_policy_and_is_recorded(running):
    rules = [{"id": "reads", "effect": "allow", "who": ["*"], "tools": ["crm:list_*"]}]
    settings = {"policy": {"rules": rules}}
    async with running(settings, crm=offering("list_customers", "refund")) as gateway:
        inspecting = await begun(gateway)

        ran = await inspecting.call("list_customers")
        refused = await inspecting.call("refund")
        await gateway.settle()
        trail = await gateway.http.request("GET", "/admin/api/v1/audit", b"", inspecting._headers)

    assert (ran["state"], ran["address"]) == ("ran", "crm:list_customers")
    assert ran["result"]["content"][0]["text"] == "done"
    assert (refused["state"], refused["reason"]) == ("refused", "no_rule")
    assert ran["call"] in json.dumps(trail.json)
    assert refused["call"] in json.dumps(trail.json)


async def test_inspector_shows_lists_and_denials_of_another_key(running):
    async with running({}, crm=offering("list_customers")) as gateway:
        await gateway.key("ci", "mcp:tools:crm:other", name="ci-bot")
        stored = next(each for each in await gateway.keys.list() if each.user == "ci")
        inspecting = await begun(gateway, **{"as": stored.id})
        card = await inspecting.call("list_customers")
        state = await inspecting.state()

    assert card["state"] == "refused"
    assert f"denied for key {stored.id}" in card["text"]
    assert state["tools"][0]["effect"] == "deny"


async def test_call_that_a_rule_asks_about_waits_for_the_person(running):
    rules = [
        {
            "id": "writes",
            "effect": "ask",
            "who": ["*"],
            "tools": ["*:*"],
            "approvers": ["caller"],
        }
    ]
    async with running({"policy": {"rules": rules}}, crm=offering("refund")) as gateway:
        inspecting = await begun(gateway)
        calling = asyncio.create_task(inspecting.call("refund", amount=5))
        asks: list[Json] = []
        while not asks:
            asks = (await inspecting.state())["asks"]
        answer = {"question": asks[0]["id"], "action": "accept"}
        assert (await inspecting.ask("POST", f"/{inspecting.id}/answer", answer)).code == 204
        card = await calling

    assert asks[0]["arguments"] == {"amount": 5}
    assert card["state"] == "ran"


async def test_tool_whose_definition_is_held_is_shown_and_not_called(running):
    crm = offering("refund")
    async with running({}, crm=crm) as gateway:
        changed = tool("refund") | {"description": "Refund and mail."}
        crm.answers["tools/list"] = {"tools": [changed]}
        await gateway.assembly.server.toolbox.upstreams["crm"].restart()
        inspecting = await begun(gateway)
        card = await inspecting.call("refund")
        state = await inspecting.state()

    assert (card["state"], card["reason"]) == ("held", "tool_quarantined")
    assert state["tools"][0]["definition"]["description"] == "Refund and mail."
    assert crm.sent("tools/call") == []


async def test_inspection_of_another_user_gets_404(running):
    async with running({}, crm=offering("x")) as gateway:
        mine = await begun(gateway)
        other = Inspecting(gateway, await gateway.key("ben", *ADMIN))
        other.id = mine.id
        reply = await other.ask("GET", f"/{mine.id}")

    assert reply.code == 404


async def test_gateway_starts_no_program_and_no_url_that_is_not_configured(running):
    async with running({}, crm=offering("x")) as gateway:
        inspecting = Inspecting(gateway, await gateway.key("mara", *ADMIN))
        program = await inspecting.begin(command="touch x")
        address = await inspecting.begin(url="http://127.0.0.1:9/mcp")
        unknown = await inspecting.begin(server="nothing")

    assert (program.code, address.code, unknown.code) == (422, 422, 404)


async def test_revoked_key_ends_its_inspections(running):
    async with running({}, crm=offering("x")) as gateway:
        inspecting = await begun(gateway)
        connections = gateway.assembly.server.toolbox.status["crm"].connections
        for each in await gateway.keys.list():
            await gateway.keys.revoke(each.id)
        await gateway.assembly.services.keys.refresh()
        reply = await inspecting.ask("GET", f"/{inspecting.id}")

    assert reply.code == 401
    assert connections == 1  # the gateway's own connection is another one


async def test_request_that_no_policy_covers_is_refused_in_a_gateway(running):
    async with running({}, crm=offering("x")) as gateway:
        inspecting = await begun(gateway)
        listed = await inspecting.ask(
            "POST", f"/{inspecting.id}/send", {"method": "tools/list", "params": {}}
        )
        other = await inspecting.ask(
            "POST", f"/{inspecting.id}/send", {"method": "tasks/list", "params": {}}
        )

    assert listed.json["state"] == "ran"
    assert (other.json["state"], other.json["reason"]) == ("refused", "method_not_covered")
