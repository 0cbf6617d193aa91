"""A gateway under load: one message upstream a call, fairness, and servers that do not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.gateway import assembly
from tests.gateway.conftest import bearer, offering
from tests.gateway.support import OWN_TOOLS
from tests.support.scripted_server import Json, text


@pytest.mark.slow("a thousand calls")
async def test_thousand_calls_of_twenty_clients_are_thousand_messages_and_one_handshake(running):
    crm = offering("x")
    async with running({"limits": {"perKey": {"concurrent": 100}}}, crm=crm) as gateway:
        keys = [await gateway.key(f"user{number}") for number in range(20)]
        sessions = [await gateway.http.initialize(headers=bearer(key)) for key in keys[:10]]

        async def client(number: int) -> None:
            for _ in range(50):
                if number < 10:
                    reply = await sessions[number].call("crm__x")
                else:
                    reply = await gateway.call("crm__x", keys[number])
                assert reply.text == "done"

        await asyncio.gather(*map(client, range(20)))
        assert len(crm.sent("tools/call")) == 1_000
        assert crm.connections == len(crm.sent("tools/list")) == len(crm.sent("initialize")) == 1

        await crm.end()
        assert (await gateway.call("crm__x", keys[0])).text == "done"
        assert crm.connections == len(crm.sent("initialize")) == 2
        assert len(crm.sent("tools/call")) == 1_001


@pytest.mark.slow("fills a database")
async def test_hanging_missing_and_broken_servers_lose_only_their_own_tools(running, monkeypatch):
    monkeypatch.setattr(assembly, "IDLE_TIMEOUT", 0.6)

    async def hang(_: Json) -> None:
        await asyncio.Event().wait()

    hanging = offering("x")
    hanging.answers["initialize"] = hanging.answers["server/discover"] = hang
    broken = offering("x")
    broken.answers["tools/list"] = {
        "tools": [
            {"name": "bad", "inputSchema": {"type": 7}},
            {"name": "good", "inputSchema": {"type": "object"}},
        ]
    }
    servers: dict[str, Any] = {f"s{number}": offering("x") for number in range(7)}
    patient = (hanging, {"connectTimeout": 3600})
    async with running(hanging=patient, missing=object(), broken=broken, **servers) as gateway:
        headers = bearer(await gateway.key())
        listed: Json = {"tools": []}
        while len(listed["tools"]) < 8 + len(OWN_TOOLS):  # some may still be starting
            listed = (await gateway.http.ask("tools/list", headers=headers)).json["result"]

    assert {each["name"] for each in listed["tools"]} - {*OWN_TOOLS} == {
        "broken__good",
        *(f"s{number}__x" for number in range(7)),
    }
    missing = {each["address"]: each for each in listed["_meta"]["interlock/missing"]}
    assert {address: each["reason"] for address, each in missing.items()} == {
        "hanging": "server_down",
        "missing": "server_down",
        "broken:bad": "tool_invalid",
    }
    assert all(each["detail"] for each in missing.values())


@pytest.mark.slow("hundreds of calls")
async def test_server_that_hangs_in_calls_delays_no_call_of_nine_others(running):
    never = asyncio.Event()

    async def hang(_: Json) -> None:
        await never.wait()

    hanging = offering("x")
    hanging.answers["tools/call"] = hang
    others: dict[str, Any] = {f"s{number}": offering("x") for number in range(9)}
    limits = {"perKey": {"concurrent": 200}}
    slots = {"limits": {"concurrent": 4}}
    async with running({"limits": limits}, h=(hanging, slots), **others) as gateway:
        anna, bert = await gateway.key("anna"), await gateway.key("bert")
        stuck = [asyncio.create_task(gateway.call("h__x", anna)) for _ in range(100)]
        while len(hanging.sent("tools/call")) < 4:  # noqa: ASYNC110 - it counts
            await asyncio.sleep(0.01)
        replies = await asyncio.gather(
            *(gateway.call(f"{name}__x", key) for name in others for key in [anna, bert] * 10)
        )
        refused = [each for each in stuck if each.done()]
        for each in stuck:
            each.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)

    assert [each.text for each in replies] == ["done"] * 180
    assert [len(each.sent("tools/call")) for each in others.values()] == [20] * 9
    assert len(hanging.sent("tools/call")) == 4
    # Four run, and 64 of one caller may wait; the others were refused at once.
    assert [each.result().code for each in refused] == [503] * 32


@pytest.mark.slow("fills a database")
async def test_polite_caller_is_served_next_while_a_greedy_one_waits(running):
    order: list[str] = []
    crm, go_on = offering("x"), asyncio.Event()

    async def slow(params: Json) -> Json:
        order.append(params["arguments"]["who"])
        await go_on.wait()
        return text("done")

    crm.answers["tools/call"] = slow
    limits = {"perKey": {"concurrent": 10}}
    server = crm, {"limits": {"concurrent": 1}}
    async with running({"limits": limits}, crm=server) as gateway:
        greedy, polite = await gateway.key("greedy"), await gateway.key("polite")
        calls = [
            asyncio.create_task(gateway.call("crm__x", greedy, who="greedy")) for _ in range(30)
        ]
        await crm.heard("tools/call")
        calls.append(asyncio.create_task(gateway.call("crm__x", polite, who="polite")))
        await asyncio.sleep(0)
        go_on.set()
        codes = [each.code for each in await asyncio.gather(*calls)]

    assert order.index("polite") <= 2
    assert codes.count(503) == 20  # the greedy one has ten calls at once
    assert codes[-1] == 200


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize(
    ("limits", "server", "reason"),
    [
        ({"tools": {"crm:x": "1/min"}}, {}, "tool_rate_limited"),
        ({"tools": {"crm:x": "1/day"}}, {}, "quota_exceeded"),
        ({}, {"limits": {"rate": "1/min"}}, "tool_rate_limited"),
    ],
)
async def test_exceeded_rate_of_a_tool_is_a_result_with_retry_after(
    limits: Json, server: Json, reason: str, running
):
    async with running({"limits": limits}, crm=(offering("x"), server)) as gateway:
        key = await gateway.key()
        await gateway.call("crm__x", key)
        reply = await gateway.call("crm__x", key)

    shown = reply.json["result"]["_meta"]["interlock/reason"]
    assert (reply.code, shown["code"]) == (200, reason)
    assert shown["retryAfter"] > 0
