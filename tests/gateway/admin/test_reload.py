"""Reload over the API: planned, applied, and refused as a whole."""

from __future__ import annotations

import pytest

from tests.gateway.admin.support import Operator
from tests.gateway.conftest import offering

RULES = [{"id": "all", "effect": "allow", "who": ["user:anna"], "tools": ["crm:*"]}]


@pytest.mark.slow("fills a database")
async def test_plan_says_what_a_reload_then_does(running):
    crm, time = offering("x", "y"), offering("now")
    async with running({}, crm=crm, time=time) as gateway:
        operator = await Operator.of(gateway)
        anna, berta = await gateway.key("anna"), await gateway.key("berta")
        settings = {"policy": {"rules": RULES}, "views": {"v": {}}, "sse": False}
        gateway.write(settings, crm=(crm, {"tools": {"deny": ["y"]}}), mail=offering("send"))
        plan = await operator.change("POST", "/reload", {"plan": True})

        assert plan["servers"] == {"added": ["mail"], "changed": ["crm"], "removed": ["time"]}
        assert plan["tools"]["removed"] == ["crm:y", "time:now"]
        assert plan["tools"]["unknown"] == ["mail", "crm"]
        assert plan["views"]["added"] == ["v"]
        assert plan["restart"] == ["sse"]
        rights = {each["user"]: (each["gains"], each["loses"]) for each in plan["rights"]}
        assert rights == {"user:berta": ([], ["crm:x"])}
        assert sorted(await gateway.names(berta)) == ["crm__x", "crm__y", "time__now"]

        applied = await operator.change("POST", "/reload", {})
        assert applied == plan | {"applied": True}
        assert await gateway.names(anna) == ["crm__x"]
        assert await gateway.names(berta) == []
        (record,) = await operator.recorded()
        assert (record["action"], record["user"]) == ("configuration_reloaded", "user:op")


@pytest.mark.slow("fills a database")
async def test_wrong_file_changes_nothing_and_is_named(running):
    async with running({}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        gateway.file.write_text('{"mcpServers": {"a": 1}}')
        reply = await operator.send("POST", "/reload", {})

        assert reply.code == 422
        assert b"gateway.json" in reply.body
        assert await gateway.names(await gateway.key()) == ["crm__x"]
