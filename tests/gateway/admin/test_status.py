"""How the gateway and its servers are, over the API."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.gateway.admin.support import Operator
from tests.gateway.conftest import offering
from tests.support.scripted_server import Json, ScriptedServer, tool


class Broken(ScriptedServer):
    """A server that cannot be started."""

    def connect(self) -> object:
        raise RuntimeError("no disk")


@pytest.mark.slow("fills a database")
async def test_status_shows_each_server_with_its_state_and_reason(running):
    async with running({"limits": {"concurrent": 7}}, crm=offering("x"), notes=Broken()) as gateway:
        operator = await Operator.of(gateway)
        found = await operator.get("/status")

    members = {"version", "uptime", "configuration", "servers", "audit", "calls", "gateways"}
    assert set(found) == members
    assert found["gateways"] == []  # one gateway at a time uses a SQLite file
    crm, notes = found["servers"]
    assert (crm["state"], crm["tools"], crm["calls"], crm["queue"]) == ("ok", 1, 0, 0)
    assert notes["state"] == "failed"
    assert "no disk" in notes["reason"]
    assert (found["audit"]["mode"], found["audit"]["lost"]) == ("strict", 0)
    assert found["calls"] == {"running": 0, "concurrent": 7, "limits": []}


@pytest.mark.slow("fills a database")
async def test_hash_of_the_configuration_changes_with_it(running):
    async with running({}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        before = (await operator.get("/status"))["configuration"]["hash"]
        await gateway.reload({"views": {"v": {}}}, crm=offering("x"))
        after = (await operator.get("/status"))["configuration"]["hash"]

    assert len({before, after}) == 2


@pytest.mark.slow("fills a database")
async def test_usage_shows_the_remaining_limits_of_a_key(running):
    settings = {"limits": {"perKey": {"rate": "10/min", "perDay": 100}}}
    async with running(settings, crm=offering("x")) as gateway:
        operator, key = await Operator.of(gateway), await gateway.key()
        id = gateway.assembly.services.keys.find(key.encode()).stored.id
        for _ in range(11):
            await gateway.call("crm__x", key)
        found = await operator.get("/usage", f"key={id}")

        rate, day = found["limits"]
        assert (rate["limit"], rate["left"]) == ("10/min", 0)
        assert 5 < rate["retryAfter"] <= 6
        assert (day["limit"], day["left"], day["retryAfter"]) == ("100/day", 90, 0)
        await gateway.call("crm__absent", other := await gateway.key("bert"))
        of_bert = gateway.assembly.services.keys.find(other.encode()).stored.id
        assert found["refusals"] == {"rate_limited": 1}
        of_bert = (await operator.get("/usage", f"key={of_bert}"))["refusals"]
        assert of_bert == {"unknown_tool": 1}
        every = (await operator.get("/usage"))["refusals"]
        assert every == {"rate_limited": 1, "unknown_tool": 1}
        assert await operator.refused("GET", "/usage", query="key=absent") == (404, "not_found")


@pytest.mark.slow("fills a database")
async def test_server_is_shown_tested_and_restarted(running):
    server = offering("x", "y")
    async with running({}, crm=server) as gateway:
        operator = await Operator.of(gateway)
        shown = await operator.get("/servers/crm")
        assert [each["address"] for each in shown["toolList"]] == ["crm:x", "crm:y"]
        tested = await operator.change("POST", "/servers/crm/test", {})
        assert (tested["ok"], tested["reason"]) == (True, None)
        server.answers["tools/list"]["tools"].append(tool("late"))
        restarted = await operator.change("POST", "/servers/crm/restart", {})
        assert (restarted["state"], restarted["tools"]) == ("ok", 2)
        shown = await operator.get("/servers/crm")
        assert shown["starts"] == 2
        (late,) = shown["unusable"]
        assert late.pop("detail").startswith("its definition is new")
        assert late == {"name": "late", "is_hidden": False, "reason": "tool_quarantined"}
        (record,) = await operator.recorded()
        assert (record["action"], record["id"]) == ("server_restarted", "crm")

        for method, path in (("GET", ""), ("GET", "/stderr"), ("POST", "/test")):
            body = {} if method == "POST" else None
            refused = await operator.refused(method, f"/servers/absent{path}", body)
            assert refused == (404, "not_found")


async def test_testing_a_broken_server_returns_the_reason(running):
    async with running({}, notes=Broken()) as gateway:
        operator = await Operator.of(gateway)
        tested = await operator.change("POST", "/servers/notes/test", {})

    assert not tested["ok"]
    assert "no disk" in tested["reason"]


@pytest.mark.slow("starts a program")
async def test_stderr_is_shown_after_the_end_and_without_secrets(tmp_path: Path, running):
    program = tmp_path / "server.py"
    program.write_text("import os, sys; sys.exit('no login with ' + os.environ['TOKEN'])")
    entry: Json = {
        "command": sys.executable,
        "args": [str(program)],
        "env": {"TOKEN": "canary-1f0c2b7a"},
    }
    async with running({}, program=entry) as gateway:
        operator = await Operator.of(gateway)
        text = (await operator.get("/servers/program/stderr"))["text"]

    assert text == "no login with ***\n"
