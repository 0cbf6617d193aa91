"""One server of a toolbox: started, watched, restarted, and never able to harm the others."""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import suppress
from typing import Any

import pytest

from interlock.calls import Call
from interlock.config import HttpServer, StdioServer
from interlock.errors import (
    AuthRequired,
    ConnectionClosed,
    InvalidArguments,
    RemoteError,
    RequestTimeout,
    ServerExited,
    ServerUnavailable,
)
from interlock.toolbox import Toolbox, restarts
from interlock.toolbox import upstream as upstream_module
from interlock.toolbox.upstream import (
    LIST_TTL,
    MAX_HANGS,
    REFRESH_PAUSE,
)
from tests.servers import evil_http
from tests.servers.evil_http import EvilHttp
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool
from tests.toolbox.upstreams import call, made, served, started

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(upstream_module, "monotonic", clock)
    return clock


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# Starting


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
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


async def test_concurrent_callers_share_one_start(clock: Clock):
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


async def test_server_that_exits_after_listing_is_started_again(clock: Clock):
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


PROGRAM = """
import json, os, sys
tool = {"name": "x", "inputSchema": {"type": "object"}}
result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "tools": [tool]}
lists = int(sys.argv[1])  # that it gives before it fails
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"result": result}
    if asked["method"] == "tools/list":
        lists -= 1
        if lists < 0:
            answer = {"error": {"code": 1, "message": "no list for " + os.environ["KEY"]}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def program(lists: int) -> StdioServer:
    """A program that tells its secret when it is asked for more lists than these."""
    args = ("-I", "-c", PROGRAM, str(lists))
    return StdioServer(command=sys.executable, args=args, env={"KEY": "canary-env"})


@pytest.mark.usefixtures("nothing_is_left")
async def test_failed_start_leaves_no_program():
    async with Toolbox({"s": program(lists=0)}) as toolbox:
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


async def test_failed_starts_back_off(clock: Clock, monkeypatch: pytest.MonkeyPatch):
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


def fail(_: Json) -> Json:
    raise RemoteError(-32000, "broken")


async def test_successful_start_resets_the_backoff(clock: Clock):
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


async def test_crashing_server_is_started_five_times_a_minute(clock: Clock):
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


async def test_three_timeouts_in_a_row_restart_the_server():
    server = served(call=lambda _: None)
    async with started(server) as upstream:
        (entry,) = upstream.entries
        for hang in range(MAX_HANGS):
            assert upstream.status.state == "ok", hang
            with pytest.raises(RequestTimeout):
                await upstream.send(Call(entry, {}, timeout=0.005))
        assert upstream.status.state == "down"
        assert upstream.status.reason == (
            "no answer to 3 calls in a row; the last one: no answer to tools/call within 0.005 s"
        )

        server.answers["tools/call"] = text("done")
        assert await call(upstream) == "done"
    assert server.connections == 2


async def test_answer_resets_the_count_of_timeouts():
    server = served()
    async with started(server) as upstream:
        (entry,) = upstream.entries
        for round in range(MAX_HANGS * 2):
            server.answers["tools/call"] = text("done") if round % 2 else lambda _: None
            with suppress(RequestTimeout):
                await upstream.send(Call(entry, {}, timeout=10.0 if round % 2 else 0.005))
        assert upstream.status.state == "ok"
    assert server.connections == 1


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


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_changed_list_is_requested_again(revision: str):
    changes: list[str] = []
    changed = asyncio.Event()

    def on_change() -> None:
        changes.append("changed")
        changed.set()

    server = served(tool("old"), revision=revision)
    server.answers["subscriptions/listen"] = lambda _: None
    async with started(server, on_change=on_change) as upstream:
        server.answers["tools/list"] = {"tools": [tool("new")]}
        changed.clear()
        server.notify("notifications/tools/list_changed")
        await changed.wait()

        assert [each.tool.name for each in upstream.entries] == ["new"]
        assert await call(upstream, "new") == "done"


async def test_change_during_listing_causes_another_listing():
    lists = [["old"], ["middle"], ["new"]]

    def answer(_: Json) -> Json:
        names = lists.pop(0)
        if names == ["middle"]:
            server.notify("notifications/tools/list_changed")
        return {"tools": [tool(name) for name in names]}

    server = served()
    server.answers["tools/list"] = answer
    async with started(server) as upstream:
        server.notify("notifications/tools/list_changed")
        await settle()
        await settle()

        assert [each.tool.name for each in upstream.entries] == ["new"]


async def test_constant_changes_are_listed_at_intervals(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(upstream_module, "REFRESH_GAP", 3600.0)
    server = served()
    async with started(server) as upstream:
        upstream._refreshed_at = -7200.0
        for _ in range(10):
            server.notify("notifications/tools/list_changed")
            await settle()
        assert len(server.sent("tools/list")) == 2  # the first one, and one for the first change
        assert await call(upstream) == "done"


async def test_changes_of_other_lists_are_ignored():
    server = served()
    async with started(server):
        server.notify("notifications/prompts/list_changed")
        server.notify("notifications/resources/list_changed")
        await settle()

    assert len(server.sent("tools/list")) == 1


@pytest.mark.parametrize(("ttl_ms", "seconds"), [(0, LIST_TTL), (5_000, 5.0)])
async def test_expired_list_is_refreshed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, ttl_ms: int, seconds: float
):
    monkeypatch.setattr("interlock.client.cache.monotonic", clock)
    server = served()
    server.answers["tools/list"] = {"tools": [], "ttlMs": ttl_ms}
    async with started(server) as upstream:
        clock.now += seconds - 0.1
        await upstream.refresh()
        assert len(server.sent("tools/list")) == 1
        clock.now += 0.1
        await upstream.refresh()
        assert len(server.sent("tools/list")) == 2


async def test_list_that_cannot_be_refreshed_is_kept(clock: Clock):
    server = served()
    async with started(server) as upstream:
        server.answers["tools/list"] = fail
        clock.now += LIST_TTL
        await upstream.refresh()

        assert [each.tool.name for each in upstream.entries] == ["x"]
        assert upstream.status.state == "ok"

        await upstream.refresh()  # not again and again: a mute server would hold up every turn
        assert len(server.sent("tools/list")) == 2
        clock.now += REFRESH_PAUSE
        await upstream.refresh()
        assert len(server.sent("tools/list")) == 3


@pytest.mark.slow("starts a program")
async def test_refresh_failure_is_logged_without_secrets(
    clock: Clock, caplog: pytest.LogCaptureFixture
):
    async with Toolbox({"s": program(lists=1)}) as toolbox:
        clock.now += LIST_TTL
        await toolbox.refresh()
        assert toolbox.status["s"].state == "ok"

    assert "tools not refreshed: no list for ***" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.usefixtures("nothing_is_left")
async def test_refresh_that_finds_no_server_marks_it_down(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("interlock.client.retries.FIRST_PAUSE", 0.001)
    async with (
        EvilHttp(evil_http.LEGACY) as server,
        Toolbox({"s": HttpServer(url=server.url)}) as toolbox,
    ):
        await server.heard("GET")
        await server.stop()
        clock.now += LIST_TTL
        await toolbox.refresh()
        assert toolbox.status["s"].state == "down"


# Calling


@pytest.mark.parametrize("arguments", [{}, {"n": "1"}, {"n": 1.5}, {"n": None}])
async def test_invalid_arguments_are_refused_before_sending(arguments: Json):
    server = served(tool("x", inputSchema=NUMBER))
    async with started(server) as upstream:
        with pytest.raises(InvalidArguments, match=r"^s:x: "):
            await call(upstream, **arguments)
        assert await call(upstream, n=1) == "done"

    assert len(server.sent("tools/call")) == 1


async def test_arguments_are_validated_while_the_server_is_down():
    server = served(tool("x", inputSchema=NUMBER))
    async with started(server) as upstream:
        await server.end()
        await settle()
        with pytest.raises(InvalidArguments):
            await call(upstream)
    assert server.connections == 1


async def test_concurrent_calls_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upstream_module, "DEFAULT_CONCURRENCY", 2)
    running: list[asyncio.Event] = []

    async def hold(_: Json) -> Json:
        running.append(asyncio.Event())
        await running[-1].wait()
        return text("done")

    server = served(call=hold)
    async with started(server) as upstream:
        calls = [asyncio.create_task(call(upstream)) for _ in range(5)]
        await server.heard("tools/call", times=2)
        await settle()
        assert len(running) == 2
        for number in range(5):
            await server.heard("tools/call", times=min(5, number + 2))
            await settle()
            running[number].set()
        assert await asyncio.gather(*calls) == ["done"] * 5


async def test_cancelled_call_frees_its_slot(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upstream_module, "DEFAULT_CONCURRENCY", 1)
    server = served(call=lambda _: None)
    async with started(server) as upstream:
        holding, waiting = (asyncio.create_task(call(upstream)) for _ in range(2))
        await server.heard("tools/call")
        waiting.cancel()
        holding.cancel()
        await settle()
        server.answers["tools/call"] = text("done")

        assert await call(upstream) == "done"


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


@pytest.mark.slow("starts a program")
async def test_configured_secrets_in_errors_are_redacted():
    script = "import sys; sys.exit(f'bad arguments {sys.argv[1:]}')"
    server = StdioServer(
        command=sys.executable,
        args=("-I", "-c", script, "--token", "${CANARY}"),
        env={"KEY": "canary-env"},
    )
    async with Toolbox({"leaky": server}, environ={"CANARY": "canary-argument"}) as toolbox:
        reason = toolbox.status["leaky"].reason

    assert "bad arguments" in reason
    assert "canary" not in reason


@pytest.mark.slow("starts a program")
async def test_hanging_server_is_reported_with_its_last_stderr_line():
    script = "echo cannot reach the database >&2; while read -r line; do :; done"
    server = StdioServer(command="sh", args=("-c", script), connect_timeout=0.2)
    async with Toolbox({"mute": server}) as toolbox:
        reason = toolbox.status["mute"].reason

    assert reason == (
        "no answer from the server within 0.2 s; it last said: cannot reach the database; "
        'raise "connectTimeout" for a slow server'
    )


LEAKY = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "tools/call":
        sys.exit("bad key " + os.environ["KEY"])
    tool = {"name": "x", "inputSchema": {"type": "object"}}
    result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "tools": [tool]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.mark.slow("starts a program")
async def test_secrets_in_the_last_words_of_a_server_are_redacted():
    server = StdioServer(
        command=sys.executable, args=("-I", "-c", LEAKY), env={"KEY": "canary-env"}
    )
    async with Toolbox({"leaky": server}) as toolbox:
        with pytest.raises(ServerExited, match=r"bad key \*\*\*") as caught:
            await toolbox.call("leaky:x")

    assert "canary" not in str(caught.value) + caught.value.stderr


async def test_secrets_in_a_url_are_redacted_in_login_errors():
    async with EvilHttp() as server:
        for method in ("server/discover", "tools/list"):
            answer = evil_http.honest(method, server.revision, server.tools)
            server.tell(method, "result", **(answer or {}))
        settings = HttpServer(url=f"{server.url}/${{KEY}}", auth="none")
        async with Toolbox({"s": settings}, environ={"KEY": "canary-path"}) as toolbox:
            with pytest.raises(
                AuthRequired, match=r"/mcp/\*\*\* requires authentication"
            ) as caught:
                await toolbox.call("s:status", {"code": 401})

    assert "canary" not in str(caught.value)
