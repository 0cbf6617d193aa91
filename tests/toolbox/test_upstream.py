"""One server of a toolbox: started, watched, restarted, and never able to harm the others."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from interlock.errors import CapabilityError, ConnectionClosed, RemoteError, ServerUnavailable
from interlock.toolbox import Toolbox, restarts
from interlock.toolbox.pool import SHARED
from interlock.toolbox.upstream import StandingRequests
from interlock.types import ServerCapabilities
from tests.support.clock import SetClock
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool
from tests.toolbox.upstreams import call, fail, listing_program, made, served, settle, started

# Starting


@each_row("revision", [LEGACY, MODERN])
async def test_started_server_has_state_ok(revision: str):
    async with started(served(tool("a"), tool("b.c"), revision=revision)) as upstream:
        status = upstream.status

    assert (status.name, status.state, status.reason, status.tools) == ("s", "ok", "", 2)
    assert (status.revision, status.server_info, status.missing) == (revision, "scripted 1", ())
    assert [each.address for each in upstream.entries] == ["s:a", "s:b.c"]
    assert upstream.entries[0].wire_name == "s__a"


async def test_server_without_tools_has_state_ok():
    for capabilities in ({"resources": {}}, {"tools": {}}):
        server = ScriptedServer(capabilities=capabilities)
        if "tools" in capabilities:
            server.answers["tools/list"] = {"tools": []}
        async with started(server) as upstream:
            assert (upstream.status.state, upstream.entries) == ("ok", ())


async def test_server_that_cannot_list_its_tools_has_failed():
    async with started(ScriptedServer()) as upstream:
        assert upstream.status.state == "failed"
        assert upstream.status.reason == "no method tools/list (-32601)"


class Broken:
    """A server in this program with a bug in it."""

    revision = LEGACY

    def connect(self) -> Any:
        raise RuntimeError("a bug of the server")


async def test_unreachable_server_has_failed():
    async with started(Broken()) as upstream:
        assert upstream.status.state == "failed"
        assert upstream.status.reason == "RuntimeError while starting: a bug of the server"


async def test_failure_is_logged_once(caplog: pytest.LogCaptureFixture):
    async with started(ScriptedServer()):
        assert [record.getMessage() for record in caplog.records] == [
            "server 's' failed: no method tools/list (-32601)"
        ]


async def test_concurrent_callers_share_one_start(clock: SetClock):
    server = served()
    async with started(server) as upstream:
        await server.end()
        await settle()
        clock.now += 60

        assert await asyncio.gather(*(call(upstream) for _ in range(5))) == ["done"] * 5
    assert server.connections == 2


async def test_cancelled_caller_does_not_stop_the_start():
    server = served()
    async with started(server) as upstream:
        await server.end()
        await settle()
        impatient, patient = (asyncio.create_task(call(upstream)) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()

        assert await patient == "done"
        assert impatient.cancelled()


async def test_server_that_exits_after_listing_is_started_again(clock: SetClock):
    async def list_and_leave(_: Json) -> None:
        result = {"tools": [tool("x")]}
        server.send({"jsonrpc": "2.0", "id": server.received[-1]["id"], "result": result})
        await server.end()  # both arrive before anybody has looked at the first

    server = served()
    tools = server.answers["tools/list"]
    server.answers["tools/list"] = list_and_leave
    async with started(server) as upstream:
        assert upstream.status.state == "failed"
        assert upstream.status.reason == "the other end closed the connection"

        server.answers["tools/list"] = tools
        clock.now += 1.0
        await upstream.start()
        assert await call(upstream) == "done"
    assert server.connections == 2


@pytest.mark.usefixtures("nothing_is_left")
async def test_failed_start_leaves_no_process():
    async with Toolbox({"s": listing_program(lists=0)}) as toolbox:
        assert toolbox.status["s"].state == "failed"
        assert toolbox.status["s"].reason == "no list for *** (1)"


@pytest.mark.slow("works through much data")
async def test_failed_start_without_waiters_is_not_reported_as_unhandled(
    nothing_is_left: list[Json],
):
    server = served()
    refused: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
    server.answers["tools/list"] = lambda _: refused
    upstream = made(server)
    waiting = asyncio.create_task(upstream.start())
    await server.heard("tools/list")
    waiting.cancel()
    await asyncio.wait({waiting})
    refused.set_exception(RemoteError(1, "no"))
    await settle()
    gc.collect()

    assert upstream.status.state == "failed"
    assert nothing_is_left == []
    await upstream.close()


# Going down and coming back


async def test_tools_of_a_lost_server_are_marked_stale():
    changes: list[str] = []
    server = served(tool("a"))
    async with started(server, on_change=lambda: changes.append("changed")) as upstream:
        before = upstream.entries
        changes.clear()
        await server.end()
        await settle()

        assert changes
        assert upstream.status.state == "down"
        assert upstream.status.reason == "the other end closed the connection"
        assert [each.stale for each in before] == [False]
        assert [(each.address, each.stale) for each in upstream.entries] == [("s:a", True)]


async def test_next_call_starts_a_lost_server():
    server = served()
    async with started(server) as upstream:
        await server.end()
        await settle()

        assert await call(upstream) == "done"
        assert (upstream.status.state, upstream.status.reason) == ("ok", "")
        assert not upstream.entries[0].stale
        await settle()
        assert upstream.status.connections == 1
    assert server.connections == 2


async def test_call_during_a_crash_fails_and_is_not_repeated():
    async def die(_: Json) -> Json:
        await server.end()
        return text("never")

    server = served(call=die)
    async with started(server) as upstream:
        with pytest.raises(ConnectionClosed):
            await call(upstream)
        assert len(server.sent("tools/call")) == 1


async def test_failed_starts_back_off(clock: SetClock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(restarts, "MAX_STARTS", 99)
    server = served()
    async with started(server) as upstream:
        server.answers["initialize"] = fail
        await server.end()
        await settle()
        waits = []
        for _ in range(8):
            with pytest.raises(ServerUnavailable, match="broken"):
                await call(upstream)
            with pytest.raises(ServerUnavailable, match=r"broken.*; next try in") as caught:
                await call(upstream)
            waits.append(float(caught.value.reason.split()[-2]))
            clock.now += waits[-1]

    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert server.connections == 9


async def test_failed_start_states_when_the_next_start_is_allowed(clock: SetClock):
    server = served()
    async with started(server) as upstream:
        server.answers["initialize"] = fail
        await server.end()
        await settle()
        found = []
        for _ in range(2):
            with pytest.raises(ServerUnavailable) as caught:
                await call(upstream)
            found.append((caught.value.code, caught.value.retry_after))
            clock.now += 0.25

    assert found == [("server_down", 0.5), ("breaker_open", 0.25)]


async def test_next_try_of_a_server_without_tools_is_when_it_may_be_started(clock: SetClock):
    server = served(tool("x"))
    server.answers["initialize"] = fail
    async with started(server) as upstream:
        tries = [upstream.next_try]
        clock.now += 0.5
        tries.append(upstream.next_try)
        await upstream.refresh()
        await settle()
        tries.append(upstream.next_try)

        server.answers.pop("initialize")
        clock.now += 1.0
        await upstream.refresh()
        await settle()
        assert upstream.status.state == "ok"
        tries.append(upstream.next_try)

    assert tries == [0.5, 0.0, 1.0, None]


async def test_server_that_the_next_call_starts_has_no_next_try():
    server = served()
    async with started(server) as upstream:
        await server.end()
        await settle()

        assert (upstream.status.state, upstream.next_try) == ("down", None)


async def test_successful_start_resets_the_backoff(clock: SetClock):
    server = served()
    async with started(server) as upstream:
        for works in (False, False, True, False):
            if works:
                server.answers.pop("initialize")
                assert await call(upstream) == "done"
            else:
                server.answers["initialize"] = fail
                if upstream.status.state == "ok":
                    await server.end()
                    await settle()
                with pytest.raises(ServerUnavailable):
                    await call(upstream)
            clock.now += 30.0
        clock.now -= 30.0
        with pytest.raises(ServerUnavailable, match=r"next try in 0\.5 s"):
            await call(upstream)


async def test_crashing_server_is_started_five_times_a_minute(clock: SetClock):
    server = served()
    async with started(server) as upstream:
        for _ in range(restarts.MAX_STARTS - 1):
            await server.end()
            await settle()
            assert await call(upstream) == "done"
        await server.end()
        await settle()
        clock.now += 10

        with pytest.raises(ServerUnavailable, match=r"next try in 50\.0 s"):
            await call(upstream)
        clock.now += 50
        assert await call(upstream) == "done"


# Tools


async def test_dropped_messages_are_counted_over_all_starts():
    server = served(tool("x"))
    stray = {"jsonrpc": "2.0", "id": 99, "result": {}}
    async with started(server) as upstream:
        for _ in range(2):
            await call(upstream)
            server.send(b"garbage", stray)
            await call(upstream)
            await server.end()
            await settle()
        await call(upstream)  # starts it again
        server.send(b"garbage")
        await call(upstream)
        counted = upstream.status.dropped

    assert counted == {"garbage": 3, "unexpected response": 2}
    assert upstream.status.dropped == counted


# Closing


async def test_closed_upstream_stays_closed():
    server = served()
    async with started(server) as upstream:
        await upstream.close()
        await asyncio.gather(upstream.close(), upstream.close())

        assert (upstream.status.state, upstream.status.reason) == ("down", "the toolbox is closed")
        with pytest.raises(ServerUnavailable, match="the toolbox is closed"):
            await call(upstream)
    assert server.connections == 1


async def test_close_cancels_a_start():
    async def never(_: Json) -> Json:
        return await asyncio.get_running_loop().create_future()

    server = served()
    server.answers["initialize"] = never
    upstream = made(server)
    starting = asyncio.create_task(upstream.start())
    await server.heard("initialize")
    await upstream.close()

    await starting  # returns: its own task was not cancelled
    assert upstream.status.reason == "the toolbox is closed"


async def test_closed_upstream_can_be_started_again():
    server = served()
    async with started(server) as upstream:
        await upstream.close()
        await upstream.start()

        assert await call(upstream) == "done"


# Log levels and subscriptions


class Connection:
    """A connection that records what is requested."""

    def __init__(self, revision: str = LEGACY, *, refuses: str = "", key: Any = SHARED) -> None:
        self.key = key
        self.client = self
        self.revision = revision
        self.capabilities = ServerCapabilities(resources={"subscribe": True}, logging={})
        self.requested: list[str] = []
        self._refuses = refuses

    async def subscribe(self, uri: str) -> None:
        if uri == self._refuses:
            raise RemoteError(-32602, "gone")
        self.requested.append(uri)

    async def set_log_level(self, level: str) -> None:
        self.requested.append(level)


async def test_a_new_connection_gets_level_and_subscriptions():
    standing, first, second = StandingRequests("crm"), Connection(), Connection()
    await standing.follow(first, "a://1")
    await standing.follow(first, "a://2")
    standing.unfollow("a://1")
    await standing.want_log_level("info", [first])

    await standing.restore(second)

    assert second.requested == ["info", "a://2"]


async def test_only_a_lower_level_is_requested_and_only_of_legacy_servers():
    standing, legacy, modern = StandingRequests("crm"), Connection(), Connection(MODERN)
    for level in ("warning", "error", "debug"):
        await standing.want_log_level(level, [legacy, modern])

    assert (legacy.requested, modern.requested) == (["warning", "debug"], [])


async def test_a_subscription_that_is_refused_later_is_logged(caplog: pytest.LogCaptureFixture):
    standing = StandingRequests("crm")
    await standing.follow(Connection(), "a://1")

    with caplog.at_level(logging.WARNING):
        await standing.restore(Connection(refuses="a://1"))

    assert "server 'crm': a://1 is not followed any more: gone" in caplog.text


async def test_a_server_without_subscriptions_is_named():
    connection = Connection()
    connection.capabilities = ServerCapabilities(resources={})

    with pytest.raises(CapabilityError, match="server 'crm' has no subscriptions to resources"):
        await StandingRequests("crm").follow(connection, "a://1")
