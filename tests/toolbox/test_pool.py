"""Who shares a connection to a server, and how many there are."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from interlock.auth import Principal
from interlock.calls import Caller
from interlock.client import Client
from interlock.client import client as client_module
from interlock.config import StdioServer
from interlock.config.servers import Pool
from interlock.errors import RemoteError, ServerUnavailable, SpawnError
from interlock.text.redaction import Redactor
from interlock.toolbox import Toolbox, pool, restarts
from interlock.toolbox.pool import SHARED, ConnectionPool, Key, PooledClient
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
async def test_server_state_is_shared_between_callers_as_configured(
    counters: Counters, sharing: str, expected: list[str]
):
    callers = [(ANNA, "a"), (ANNA, "b"), (BERTA, "a"), (ANNA, "a"), (BERTA, "a")]
    async with box(sharing) as toolbox:
        assert [await count(toolbox, *each) for each in callers] == expected
    assert all(server.connections == 1 for server in counters.servers)


@pytest.mark.slow("1,000 interleavings")
@pytest.mark.parametrize("sharing", ["shared", "per_user", "per_session", "per_call"])
async def test_interleaved_calls_of_two_users_use_their_own_counters(
    counters: Counters, sharing: str
):
    """250 interleavings for each: two new users with two sessions, six calls at any time."""
    chance = random.Random(sharing)
    shared: list[int] = []
    async with box(sharing, max=8) as toolbox:

        async def call(user: str, session: str) -> tuple[str, str, int]:
            for _ in range(chance.randint(0, 12)):
                await asyncio.sleep(0)
            number = int(await count(toolbox, Principal(user), session))
            assert toolbox.status["c"].connections <= 8 + 1  # one lists the tools
            return user, session, number

        for number in range(250):
            users, sessions = (f"anna{number}", f"bert{number}"), ("one", "two")
            calls = [(chance.choice(users), chance.choice(sessions)) for _ in range(6)]
            found = await asyncio.gather(*(call(*each) for each in calls))
            if sharing == "shared":
                shared += [each for *_, each in found]
            elif sharing == "per_call":
                assert [each for *_, each in found] == [1] * 6
            else:
                seen: dict[tuple[str, ...], list[int]] = {}
                for user, session, each in found:
                    key = (user,) if sharing == "per_user" else (user, session)
                    seen.setdefault(key, []).append(each)
                for numbers in seen.values():
                    assert sorted(numbers) == [*range(1, len(numbers) + 1)]
    assert sorted(shared) == [*range(1, len(shared) + 1)]
    assert all(each.is_closed for each in counters.servers)


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


# The pool by itself: clients that are not open, and starts that a test lets go on


class Starts:
    """Opens connections, once `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.keys: list[Key] = []
        self.ended: list[PooledClient] = []

    async def connect(self, key: Key) -> PooledClient:
        self.keys.append(key)
        await self.go.wait()
        return PooledClient(key, Client(ScriptedServer(LEGACY, {}).connect), Redactor())

    def pool(self, sharing: Any, **limits: Any) -> ConnectionPool:
        return ConnectionPool(
            "c", self.connect, sharing, Pool(**limits), lambda key: None, self.ended.append
        )


async def turns(number: int = 10) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def by(name: str) -> Caller:
    return Caller(Principal(name))


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def test_connection_opened_only_for_a_cancelled_call_is_closed():
    starts = Starts()
    starts.go.clear()
    opening = starts.pool("per_call")
    call = asyncio.create_task(opening.acquire(by("anna")))
    await turns()
    await cancelled(call)
    starts.go.set()
    await turns()

    assert opening.size == 0
    assert len(starts.ended) == 1


async def test_connection_that_no_call_ever_used_is_closed_when_idle():
    starts = Starts()
    starts.go.clear()
    opening = starts.pool("per_user", idle=0.001)
    call = asyncio.create_task(opening.acquire(by("anna")))
    await turns()
    await cancelled(call)
    starts.go.set()
    await until(lambda: len(starts.ended) == 1)

    assert opening.size == 0


async def test_cancelled_waiting_call_leaves_its_place_to_the_next_one():
    opening = Starts().pool("per_user", max=1)
    used = await opening.acquire(by("anna"))
    first = asyncio.create_task(opening.acquire(by("berta")))
    second = asyncio.create_task(opening.acquire(by("carla")))
    await turns()
    opening.release(used)
    await cancelled(first)
    await turns()

    assert second.done()
    assert (await second).key == opening.key_of(by("carla"))


async def test_waiting_calls_of_one_user_share_the_connection_that_becomes_free():
    opening = Starts().pool("per_user", max=1)
    used = await opening.acquire(by("anna"))
    waiting = [asyncio.create_task(opening.acquire(by(name))) for name in ("b", "c", "b")]
    await turns()
    opening.release(used)
    await turns()

    assert [each.done() for each in waiting] == [True, False, True]
    opening.release(await waiting[0])
    opening.release(await waiting[2])
    assert (await waiting[1]).key == opening.key_of(by("c"))


async def test_new_call_does_not_overtake_a_waiting_one():
    opening = Starts().pool("per_user", max=1)
    used = await opening.acquire(by("anna"))
    waiting = asyncio.create_task(opening.acquire(by("berta")))
    await turns()
    opening.release(used)
    late = asyncio.create_task(opening.acquire(by("carla")))
    opening.release(await waiting)

    assert (await late).key == opening.key_of(by("carla"))
    assert waiting.result().key == opening.key_of(by("berta"))


async def test_connection_in_constant_use_is_replaced_after_its_last_allowed_call():
    opening = Starts().pool("per_user", calls=2)
    first = [await opening.acquire(by("anna")) for _ in range(3)]
    opening.release(first[0])
    opening.release(first[1])
    later = await opening.acquire(by("anna"))

    assert first[0] is first[1] is first[2] is not later


async def test_lost_spare_connection_is_not_used():
    starts = Starts()
    opening = starts.pool("per_call", spare=1)
    await opening.start(SHARED)
    await turns()
    (spare,) = set(opening.connections) - {opening.shared}
    opening.drop(spare)
    pooled = await opening.acquire(by("anna"))

    assert pooled is not spare
    opening.release(pooled)
    await turns()
    assert opening.size == 2


async def test_spare_connection_is_replaced_as_soon_as_there_is_room():
    starts = Starts()
    opening = starts.pool("per_call", spare=1, max=2)
    await opening.start(SHARED)
    await turns()
    for _ in range(3):
        assert len(starts.keys) == len(starts.ended) + 2  # it is open before the call
        opening.release(await opening.acquire(by("anna")))
        await turns()


async def test_spare_connections_are_no_more_than_configured():
    starts = Starts()
    opening = starts.pool("per_call", spare=2)
    await opening.start(SHARED)
    await turns()
    starts.go.clear()
    for _ in range(2):
        await opening.acquire(by("anna"))
    starts.go.set()
    await turns()

    assert opening.size == 1 + 2 + 2


async def test_waiting_calls_fail_at_once_when_the_pool_is_closed():
    starts = Starts()
    is_closed = False

    def check(key: Key) -> None:
        if is_closed:
            raise ServerUnavailable("c", "the toolbox is closed")

    opening = ConnectionPool(
        "c", starts.connect, "per_user", Pool(max=1), check, starts.ended.append
    )
    await opening.acquire(by("anna"))
    waiting = [asyncio.create_task(opening.acquire(by(name))) for name in ("b", "c")]
    await turns()
    is_closed = True
    await opening.close()

    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(each) for each in results] == [
        "server 'c' is not available: the toolbox is closed"
    ] * 2


async def test_replaced_connections_do_not_count_as_restarts(counters: Counters):
    async with box("per_user", calls=1) as toolbox:
        assert [await count(toolbox, ANNA) for _ in range(7)] == ["1"] * 7


async def test_dropped_messages_of_closed_connections_stay_in_the_status(counters: Counters):
    async with box("per_user", calls=1) as toolbox:
        await count(toolbox, ANNA)
        before = sum(toolbox.status["c"].dropped.values())
        counters.held = asyncio.Event()
        call = asyncio.create_task(count(toolbox, ANNA))
        await until(lambda: len(counters.servers) == 3)
        await until(lambda: counters.servers[2].sent("tools/call") != [])
        counters.servers[2].send(b"garbage")
        counters.held.set()
        await call

        assert sum(toolbox.status["c"].dropped.values()) == before + 1


async def test_failing_start_for_a_user_has_its_reason_in_the_next_error(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
):
    async with box("per_user") as toolbox:

        def fail(*_: Any, **__: Any) -> Any:
            raise SpawnError("cannot start 'counter'")

        monkeypatch.setattr(client_module, "StdioTransport", fail)
        for _ in range(2):
            with pytest.raises(ServerUnavailable, match="cannot start 'counter'"):
                await count(toolbox, ANNA)
        assert toolbox.status["c"].state == "ok"


async def test_failed_starts_of_many_users_are_evicted_and_those_of_the_server_are_kept(
    counters: Counters, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(restarts, "MAX_KEYS", 2)
    async with box("per_user") as toolbox:
        await counters.servers[0].end()
        await until(lambda: toolbox.status["c"].state == "down")

        def fail(*_: Any, **__: Any) -> Any:
            raise SpawnError("cannot start 'counter'")

        monkeypatch.setattr(client_module, "StdioTransport", fail)
        for principal in (None, ANNA, BERTA, Principal("user:carla")):
            with pytest.raises(ServerUnavailable):
                await count(toolbox, principal)
        assert toolbox.status["c"].retry_in > 0
        with pytest.raises(ServerUnavailable, match="next try in"):
            await count(toolbox, None)


async def test_task_only_tool_runs_as_a_task_on_a_users_connection(
    monkeypatch: pytest.MonkeyPatch,
):
    def call(params: Json) -> Json:
        if "task" not in params:
            raise RemoteError(-32601, "this tool runs only as a task")
        return {"task": {"taskId": "t1", "status": "completed", "ttl": None}}

    slow = tool("count", execution={"taskSupport": "required"})
    answers: Any = {
        "tools/list": {"tools": [slow]},
        "tools/call": call,
        "tasks/result": text("done"),
    }
    server = ScriptedServer(LEGACY, answers)
    monkeypatch.setattr(client_module, "StdioTransport", lambda *_, **__: server.connect())
    async with box("per_user") as toolbox:
        assert await count(toolbox, ANNA) == "done"


async def test_result_on_a_users_connection_is_checked_against_the_output_schema(
    monkeypatch: pytest.MonkeyPatch,
):
    fields = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    answers: Any = {
        "tools/list": {"tools": [tool("count", outputSchema=fields)]},
        "tools/call": text("1", structuredContent={"n": "one"}),
    }
    server = ScriptedServer(LEGACY, answers)
    monkeypatch.setattr(client_module, "StdioTransport", lambda *_, **__: server.connect())
    async with box("per_user") as toolbox:
        assert "does not fit its outputSchema" in await count(toolbox, ANNA)
