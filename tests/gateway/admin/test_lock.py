"""Definitions over the API: compared, accepted by their hash, and never by an old one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.admin.support import Operator
from tests.gateway.conftest import RunningGateway, offering
from tests.support.scripted_server import ScriptedServer, tool


def change(server: ScriptedServer, description: str) -> None:
    tools = [tool("refund") | {"description": description}]
    server.answers["tools/list"] = {"tools": tools}


async def relisted(gateway: RunningGateway) -> None:
    await gateway.assembly.server.toolbox.upstreams["crm"].restart()


@pytest.mark.slow("fills a database")
async def test_changed_definition_is_compared_and_accepted_by_its_hash(running):
    crm = offering("refund")
    async with running({}, crm=crm) as gateway:
        operator, key = await Operator.of(gateway), await gateway.key()
        change(crm, "Refund and mail.")
        await relisted(gateway)
        assert await gateway.names(key) == []
        (held,) = await operator.get("/lock", "state=changed")
        (shown,) = await operator.get("/lock/crm/refund")
        assert any("mail" in line for line in shown["diff"])
        assert shown["seenHash"] == held["seenHash"]

        change(crm, "Refund, mail and delete.")
        await relisted(gateway)
        old = {"hash": held["seenHash"]}
        refused = await operator.refused("POST", "/lock/crm/refund/accept", old)
        assert refused == (409, "definition_changed")
        (now,) = await operator.get("/lock/crm/refund")
        accepted = await operator.change(
            "POST", "/lock/crm/refund/accept", {"hash": now["seenHash"], "riskFromHints": True}
        )
        assert (accepted["state"], accepted["decidedBy"]) == ("accepted", "user:op")
        assert await gateway.names(key) == ["crm__refund"]

        rejected = await operator.change(
            "POST", "/lock/crm/refund/reject", {"hash": now["seenHash"]}
        )
        assert rejected["state"] != "accepted"
        assert await gateway.names(key) == []
        (server,) = await operator.get("/lock/crm/-")
        assert server["kind"] == "server"
        for path in ("/lock/crm/absent", "/lock/absent/-"):
            assert await operator.refused("GET", path) == (404, "not_found")


@pytest.mark.slow("fills a database")
async def test_decision_is_recorded_with_actor_and_both_states(running):
    crm = offering("refund")
    async with running({}, crm=crm) as gateway:
        operator = await Operator.of(gateway)
        (shown,) = await operator.get("/lock/crm/refund")
        await operator.change("POST", "/lock/crm/refund/reject", {"hash": shown["hash"]})
        every = await operator.records("pin")

    decided = [each for each in every if "decision" in each]
    assert [(each["decision"], each["user"], each["tool"]) for each in decided] == [
        ("reject", "user:op", "crm:refund")
    ]
    assert (decided[0]["before"]["state"], decided[0]["after"]["state"]) == ("accepted", "new")


@pytest.mark.slow("fills a database")
async def test_lock_file_is_not_changed_over_http(running, tmp_path: Path):
    file = tmp_path / "lock.json"
    file.write_text('{"version": 1, "servers": {}}')
    before = file.read_bytes()
    async with running(
        {"lock": {"mode": "strict", "file": str(file)}}, crm=offering("x")
    ) as gateway:
        operator, key = await Operator.of(gateway), await gateway.key()
        (waiting,) = await operator.get("/lock/crm/x")
        body = {"hash": waiting["seenHash"]}
        for decision in ("accept", "reject"):
            refused = await operator.refused("POST", f"/lock/crm/x/{decision}", body)
            assert refused == (409, "lock_strict")
        assert (await operator.get("/lock/crm/x")) == [waiting]
        assert await gateway.names(key) == []
    assert file.read_bytes() == before
