"""Reload over the API: planned, applied, and refused as a whole."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from interlock.config import Config
from interlock.errors import ConfigError
from tests.gateway.admin.support import Operator
from tests.gateway.conftest import offering

RULES = [{"id": "all", "effect": "allow", "who": ["user:anna"], "tools": ["crm:*"]}]


@pytest.mark.slow("fills a database")
async def test_reload_makes_the_changes_that_its_plan_listed(running):
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
        await gateway.settle()
        records = await operator.recorded()
        assert [(each["action"], each["user"]) for each in records] == [
            ("configuration_reload_started", "user:op"),
            ("configuration_reloaded", "user:op"),
        ]


@pytest.mark.slow("fills a database")
async def test_reload_that_fails_is_recorded_as_failed(running, monkeypatch):
    async with running({}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)

        async def fail(config: Config) -> None:
            raise ConfigError("canary: the plugins cannot be loaded")

        monkeypatch.setattr(gateway.assembly, "reload", fail)
        reply = await operator.send("POST", "/reload", {})

        assert reply.code == 422
        await gateway.settle()
        started, failed = await operator.recorded()
        assert started["action"] == "configuration_reload_started"
        assert failed["action"] == "configuration_reload_failed"
        assert failed["error"] == "ConfigError"
        assert failed["after"] == started["after"]
        assert "canary" not in str(failed)


@pytest.mark.slow("fills a database")
async def test_reload_is_answered_as_made_although_its_outcome_cannot_be_recorded(
    running, monkeypatch, tmp_path
):
    settings = {"lock": {"mode": "off"}}
    async with running(settings, crm=offering("x")) as gateway:
        operator, anna = await Operator.of(gateway), await gateway.key("anna")
        gateway.write(settings, crm=offering("y"))
        reload = gateway.assembly.reload
        locked = sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)

        async def reload_and_lock(config: Config) -> list[str]:
            restart = await reload(config)
            locked.execute("BEGIN IMMEDIATE")
            return restart

        monkeypatch.setattr(gateway.assembly, "reload", reload_and_lock)
        with closing(locked):
            applied = await operator.change("POST", "/reload", {})
            assert applied["applied"] is True
            assert await gateway.names(anna) == ["crm__y"]
        await gateway.settle()
        assert (await operator.recorded())[-1]["action"] == "configuration_reloaded"


@pytest.mark.slow("fills a database")
async def test_wrong_file_changes_nothing_and_is_named(running):
    async with running({}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        gateway.file.write_text('{"mcpServers": 1}')
        reply = await operator.send("POST", "/reload", {})

        assert reply.code == 422
        assert b"gateway.json" in reply.body
        assert await gateway.names(await gateway.key()) == ["crm__x"]
