"""Who shares a connection to a server, and how many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from interlock.auth import Principal
from interlock.calls import Caller
from interlock.client import client as client_module
from interlock.config import StdioServer
from interlock.config.servers import Pool
from interlock.errors import ServerUnavailable
from interlock.toolbox import Toolbox, pool
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool

ANNA, BERTA = Principal("user:anna"), Principal("user:berta")


class Counters:
    """Programs with a counter each: every connection counts its own calls."""

    def __init__(self) -> None:
        self.servers: list[ScriptedServer] = []
        self.held: asyncio.Event | None = None

    def connect(self, *_: Any, **__: Any) -> Any:
        count = 0

        async def call(_: Json) -> Json:
            nonlocal count
            count += 1
            own = count
            if self.held is not None:
                await self.held.wait()
            return text(str(own))

        answers: Any = {"tools/list": {"tools": [tool("count")]}, "tools/call": call}
        server = ScriptedServer(LEGACY, answers)
        self.servers.append(server)
        return server.connect()


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Counters:
    counters = Counters()
    monkeypatch.setattr(client_module, "StdioTransport", counters.connect)
    return counters


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a state that has no event
            await asyncio.sleep(0)


def box(sharing: Any, **limits: Any) -> Toolbox:
    server = StdioServer(command="counter", sharing=sharing, pool=Pool(**limits))
    return Toolbox({"c": server}, environ={}, revision=LEGACY)


async def count(toolbox: Toolbox, principal: Principal | None, session: str = "") -> str:
    caller = Caller(principal, session, "mcp")
    return (await toolbox.call("c:count", caller=caller)).text


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        ("shared", ["1", "2", "3", "4", "5"]),
        ("per_user", ["1", "2", "1", "3", "2"]),
        ("per_session", ["1", "1", "1", "2", "2"]),
        ("per_call", ["1", "1", "1", "1", "1"]),
    ],
)
async def test_state_of_a_server_is_shared_as_far_as_configured(
    counters: Counters, sharing: str, expected: list[str]
):
    callers = [(ANNA, "a"), (ANNA, "b"), (BERTA, "a"), (ANNA, "a"), (BERTA, "a")]
    async with box(sharing) as toolbox:
        assert [await count(toolbox, *each) for each in callers] == expected
    assert all(server.connections == 1 for server in counters.servers)


async def test_two_principals_at_once_never_share_a_connection(counters: Counters):
    counters.held = asyncio.Event()
    async with box("per_user") as toolbox:
        calls = [asyncio.create_task(count(toolbox, each)) for each in (ANNA, BERTA) * 3]
        await asyncio.sleep(0)
        await until(lambda: sum(len(each.sent("tools/call")) for each in counters.servers) == 6)
        counters.held.set()
        found = await asyncio.gather(*calls)

    assert found == ["1", "1", "2", "2", "3", "3"]
    assert len(counters.servers) == 3  # one lists the tools


async def test_idle_connection_is_closed_when_another_user_needs_its_place(counters: Counters):
    async with box("per_user", max=2) as toolbox:
        await count(toolbox, ANNA)
        await count(toolbox, BERTA)
        assert toolbox.status["c"].connections == 2
        assert await count(toolbox, ANNA) == "1"  # a new one


async def test_call_waits_while_all_connections_are_in_use(counters: Counters):
    counters.held = asyncio.Event()
    async with box("per_user", max=2) as toolbox:
        first = asyncio.create_task(count(toolbox, ANNA))
        await until(lambda: len(counters.servers) == 2)
        second = asyncio.create_task(count(toolbox, BERTA))
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(counters.servers) == 2
        counters.held.set()
        assert await asyncio.gather(first, second) == ["1", "1"]


async def test_call_fails_when_no_connection_becomes_free(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pool, "WAIT_TIMEOUT", 0.01)
    counters.held = asyncio.Event()
    async with box("per_user", max=2) as toolbox:
        first = asyncio.create_task(count(toolbox, ANNA))
        await until(lambda: len(counters.servers) == 2)
        with pytest.raises(ServerUnavailable, match="all 2 connections are in use"):
            await count(toolbox, BERTA)
        counters.held.set()
        await first


async def test_connection_is_replaced_after_its_last_allowed_call(counters: Counters):
    async with box("per_user", calls=2) as toolbox:
        assert [await count(toolbox, ANNA) for _ in range(5)] == ["1", "2", "1", "2", "1"]


async def test_idle_connections_are_closed_after_a_while(counters: Counters):
    async with box("per_user", idle=0.02) as toolbox:
        await count(toolbox, ANNA)
        assert toolbox.status["c"].connections == 2
        await until(lambda: toolbox.status["c"].connections == 1)
        assert await count(toolbox, ANNA) == "1"


async def test_spare_connection_is_open_before_the_call(counters: Counters):
    async with box("per_call", spare=1) as toolbox:
        await until(lambda: len(counters.servers) == 2)
        started = len(counters.servers)
        counters.held = asyncio.Event()
        call = asyncio.create_task(count(toolbox, ANNA))
        await until(lambda: counters.servers[1].sent("tools/call") != [])
        counters.held.set()
        assert await call == "1"
        assert started == 2


async def test_loss_of_a_users_connection_leaves_the_others_alone(counters: Counters):
    async with box("per_user") as toolbox:
        await count(toolbox, ANNA)
        await count(toolbox, BERTA)
        await counters.servers[1].end()
        await until(lambda: toolbox.status["c"].connections == 2)

        assert toolbox.status["c"].state == "ok"
        assert await count(toolbox, ANNA) == "1"
        assert await count(toolbox, BERTA) == "2"
