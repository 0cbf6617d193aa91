"""What a caller sees of the tools, for operators and for the callers themselves."""

from __future__ import annotations

import pytest

from tests.gateway.admin.support import Operator
from tests.gateway.admin.test_status import Broken
from tests.gateway.conftest import offering

SETTINGS = {
    "views": {"support": {"servers": ["crm"]}},
    "policy": {
        "rules": [
            {"id": "reads", "effect": "allow", "who": ["*"], "tools": ["*:get_*"]},
            {"id": "refunds", "effect": "ask", "who": ["user:anna"], "tools": ["crm:refund"]},
        ]
    },
}


@pytest.mark.slow("fills a database")
async def test_operator_can_list_the_tools_that_a_key_or_a_user_sees(running):
    servers = {"crm": offering("get_x", "refund"), "time": offering("get_now"), "notes": Broken()}
    async with running(SETTINGS, **servers) as gateway:
        operator = await Operator.of(gateway)
        key = await gateway.key("anna")
        id = gateway.assembly.services.keys.find(key.encode()).stored.id
        of_key = await operator.get("/tools", f"key={id}")
        of_view = await operator.get("/tools", "user=berta&view=support")

        shown = [(each["address"], each["effect"], each["state"]) for each in of_key["tools"]]
        assert shown == [
            ("crm:get_x", "allow", "ok"),
            ("crm:refund", "ask", "ok"),
            ("time:get_now", "allow", "ok"),
        ]
        assert [(each["address"], each["reason"]) for each in of_key["missing"]] == [
            ("notes", "server_down")
        ]
        assert [each["address"] for each in of_view["tools"]] == ["crm:get_x"]
        assert (of_key["denied"], of_view["denied"]) == ([], ["crm:refund", "time:get_now"])
        assert sorted(await gateway.names(key)) == sorted(each["name"] for each in of_key["tools"])
        for query, refusal in (
            ("", (400, "bad_request")),
            (f"key={id}&user=anna", (400, "bad_request")),
            ("key=absent", (404, "not_found")),
            ("user=anna&view=absent", (404, "not_found")),
        ):
            assert await operator.refused("GET", "/tools", query=query) == refusal, query


@pytest.mark.slow("fills a database")
async def test_operator_sees_what_a_caller_finds_and_why(running):
    async with running(SETTINGS, crm=offering("get_x", "refund", "delete_x")) as gateway:
        operator = await Operator.of(gateway)
        of_anna = await operator.get("/tools", "user=anna&search=crm%20refund")
        of_berta = await operator.get("/tools", "user=berta&search=crm%20refund")

    first = of_anna["tools"][0]
    assert (first["address"], first["effect"]) == ("crm:refund", "ask")
    assert first["matches"]["refund"] == {"refund": ["name"]}
    assert [each["address"] for each in of_berta["tools"]] == ["crm:get_x"]


@pytest.mark.slow("fills a database")
async def test_caller_searches_their_own_tools(running):
    async with running(SETTINGS, crm=offering("get_x", "refund")) as gateway:
        anna = Operator(gateway, await gateway.key("anna"))
        berta = Operator(gateway, await gateway.key("berta", "mcp:other:*"))

        found = await anna.get("/me/tools", "q=REFUND")
        assert [each["address"] for each in found["tools"]] == ["crm:refund"]
        assert (await anna.get("/me/tools", "q=zzz"))["reason"] == "no_match"
        assert (await berta.get("/me/tools"))["reason"] == "nothing_granted"


@pytest.mark.slow("fills a database")
async def test_caller_sees_their_own_identity(running):
    link = "https://traces.example.com/{trace_id}"
    settings = SETTINGS | {"groups": {"leads": ["user:anna"]}, "telemetry": {"link": link}}
    async with running(settings, crm=offering("get_x")) as gateway:
        anna = Operator(gateway, await gateway.key("anna", "mcp:read", "admin:approve"))
        me = await anna.get("/me")
        auditor = Operator(gateway, await gateway.key("berta", "admin:read"))
        assert (await auditor.get("/me"))["traces"] == link

    assert (me["user"], me["role"], me["groups"]) == ("user:anna", "operator", ["leads"])
    assert me["scopes"] == ["admin:approve", "mcp:read"]
    assert me["features"] == {"chat": False, "plugins": False}
    assert "traces" not in me
