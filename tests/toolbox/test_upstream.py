"""One server of a toolbox: started, watched, restarted, and never able to harm the others."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from interlock.calls import Call
from interlock.config import HttpServer, StdioServer
from interlock.errors import (
    AuthRequired,
    ConnectionClosed,
    InvalidArguments,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    ServerExited,
    ServerUnavailable,
)
from interlock.toolbox import Toolbox, restarts
from interlock.toolbox import upstream as member_module
from interlock.toolbox.upstream import (
    LIST_TTL,
    MAX_DESCRIPTION,
    MAX_HANGS,
    REFRESH_PAUSE,
    Upstream,
)
from interlock.transports.http_pool import HttpPool
from tests.servers import evil_http
from tests.servers.evil_http import EvilHttp
from tests.support.scripted_server import LEGACY, MODERN, Answer, Json, ScriptedServer, text, tool

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
BOMB = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/a0"}},
    "$defs": {
        **{f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(25)},
        "a25": {"type": "string"},
    },
}


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(member_module, "monotonic", clock)
    return clock


def served(*tools: Json, revision: str = LEGACY, call: Answer | None = None) -> ScriptedServer:
    """A server with these tools, which all say "done"."""
    listed: Answer = {"tools": list(tools) or [tool("x")]}
    answers = {"tools/list": listed, "tools/call": call or text("done")}
    return ScriptedServer(revision, answers, capabilities={"tools": {"listChanged": True}})


@asynccontextmanager
async def started(server: Any, **options: Any) -> AsyncIterator[Upstream]:
    """Start a member for the server; close it afterwards."""
    member = made(server, **options)
    await member.start()
    yield member
    await member.close()


def made(server: Any, on_change: Callable[[], None] = lambda: None, **options: Any) -> Upstream:
    return Upstream(
        "s",
        server,
        environ={},
        pool=HttpPool,
        on_change=on_change,
        revision=server.revision,
        **options,
    )


async def call(member: Upstream, name: str = "x", /, **arguments: Any) -> str:
    (entry,) = (each for each in member.entries if each.tool.name == name)
    call = Call(entry, arguments)
    member.validate(call)
    return (await member.send(call)).result.text


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# Starting


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_server_that_is_well_says_so(revision: str):
    async with started(served(tool("a"), tool("b.c"), revision=revision)) as member:
        status = member.status

    assert (status.name, status.state, status.reason, status.tools) == ("s", "ok", "", 2)
    assert (status.revision, status.server_info, status.missing) == (revision, "scripted 1", ())
    assert [each.address for each in member.entries] == ["s:a", "s:b.c"]
    assert member.entries[0].wire_name == "s__a"


async def test_a_server_without_tools_has_none_and_is_well():
    for capabilities in ({"resources": {}}, {"tools": {}}):
        server = ScriptedServer(capabilities=capabilities)
        if "tools" in capabilities:
            server.answers["tools/list"] = {"tools": []}
        async with started(server) as member:
            assert (member.status.state, member.entries) == ("ok", ())


async def test_a_server_that_offers_tools_and_cannot_list_them_has_failed():
    async with started(ScriptedServer()) as member:
        assert member.status.state == "failed"
        assert member.status.reason == "no method tools/list (-32601)"


class Broken:
    """A server in this program with a bug in it."""

    revision = LEGACY

    def connect(self) -> Any:
        raise RuntimeError("a bug of the server")


async def test_a_server_that_cannot_even_be_reached_has_failed():
    async with started(Broken()) as member:
        assert member.status.state == "failed"
        assert member.status.reason == "RuntimeError while starting: a bug of the server"


async def test_a_failure_is_logged_once(caplog: pytest.LogCaptureFixture):
    async with started(ScriptedServer()):
        assert [record.getMessage() for record in caplog.records] == [
            "server 's' failed: no method tools/list (-32601)"
        ]


async def test_a_start_is_shared_by_all_who_wait_for_it(clock: Clock):
    server = served()
    async with started(server) as member:
        await server.end()
        await settle()
        clock.now += 60

        assert await asyncio.gather(*(call(member) for _ in range(5))) == ["done"] * 5
    assert server.connections == 2


async def test_who_stops_waiting_does_not_stop_the_start():
    server = served()
    async with started(server) as member:
        await server.end()
        await settle()
        impatient, patient = (asyncio.create_task(call(member)) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()

        assert await patient == "done"
        assert impatient.cancelled()


async def test_a_server_that_lists_its_tools_and_goes_away_is_started_again(clock: Clock):
    async def list_and_leave(_: Json) -> None:
        result = {"tools": [tool("x")]}
        server.send({"jsonrpc": "2.0", "id": server.received[-1]["id"], "result": result})
        await server.end()  # both arrive before anybody has looked at the first

    server = served()
    tools = server.answers["tools/list"]
    server.answers["tools/list"] = list_and_leave
    async with started(server) as member:
        assert member.status.state == "failed"
        assert member.status.reason == "the other end closed the connection"

        server.answers["tools/list"] = tools
        clock.now += 1.0
        await member.start()
        assert await call(member) == "done"
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
async def test_a_start_that_fails_leaves_no_program_behind():
    async with Toolbox({"s": program(lists=0)}) as toolbox:
        assert toolbox.status["s"].state == "failed"
        assert toolbox.status["s"].reason == "no list for *** (1)"


async def test_a_start_that_fails_is_nobody_s_fault_who_has_stopped_waiting(
    nothing_is_left: list[Json],
):
    server = served()
    refused: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
    server.answers["tools/list"] = lambda _: refused
    member = made(server)
    waiting = asyncio.create_task(member.start())
    await server.heard("tools/list")
    waiting.cancel()
    await asyncio.wait({waiting})
    refused.set_exception(RemoteError(1, "no"))
    await settle()
    gc.collect()

    assert member.status.state == "failed"
    assert nothing_is_left == []
    await member.close()


# Going down and coming back


async def test_the_last_good_list_is_kept_and_marked_when_the_server_is_down():
    changes: list[str] = []
    server = served(tool("a"))
    async with started(server, on_change=lambda: changes.append("changed")) as member:
        before = member.entries
        changes.clear()
        await server.end()
        await settle()

        assert changes
        assert member.status.state == "down"
        assert member.status.reason == "the other end closed the connection"
        assert [each.stale for each in before] == [False]
        assert [(each.address, each.stale) for each in member.entries] == [("s:a", True)]


async def test_the_next_call_starts_a_server_that_is_down():
    server = served()
    async with started(server) as member:
        await server.end()
        await settle()

        assert await call(member) == "done"
        assert (member.status.state, member.status.reason) == ("ok", "")
        assert not member.entries[0].stale
        await settle()
        assert member.status.connections == 1
    assert server.connections == 2


async def test_a_call_that_the_server_dies_under_fails_and_is_not_repeated():
    async def die(_: Json) -> Json:
        await server.end()
        return text("never")

    server = served(call=die)
    async with started(server) as member:
        with pytest.raises(ConnectionClosed):
            await call(member)
        assert len(server.sent("tools/call")) == 1


async def test_a_server_that_cannot_start_is_tried_less_and_less(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(restarts, "MAX_STARTS", 99)
    server = served()
    async with started(server) as member:
        server.answers["initialize"] = fail
        await server.end()
        await settle()
        waits = []
        for _ in range(8):
            with pytest.raises(ServerUnavailable, match="broken"):
                await call(member)
            with pytest.raises(ServerUnavailable, match=r"broken.*; next try in") as caught:
                await call(member)
            waits.append(float(caught.value.reason.split()[-2]))
            clock.now += waits[-1]

    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert server.connections == 9


def fail(_: Json) -> Json:
    raise RemoteError(-32000, "broken")


async def test_a_start_that_succeeds_makes_failures_count_anew(clock: Clock):
    server = served()
    async with started(server) as member:
        for works in (False, False, True, False):
            if works:
                server.answers.pop("initialize")
                assert await call(member) == "done"
            else:
                server.answers["initialize"] = fail
                if member.status.state == "ok":
                    await server.end()
                    await settle()
                with pytest.raises(ServerUnavailable):
                    await call(member)
            clock.now += 30.0
        clock.now -= 30.0
        with pytest.raises(ServerUnavailable, match=r"next try in 0\.5 s"):
            await call(member)


async def test_a_server_that_dies_again_and_again_is_started_five_times_a_minute(clock: Clock):
    server = served()
    async with started(server) as member:
        for _ in range(restarts.MAX_STARTS - 1):
            await server.end()
            await settle()
            assert await call(member) == "done"
        await server.end()
        await settle()
        clock.now += 10

        with pytest.raises(ServerUnavailable, match=r"next try in 50\.0 s"):
            await call(member)
        clock.now += 50
        assert await call(member) == "done"


async def test_three_hangs_in_a_row_start_the_server_anew():
    server = served(call=lambda _: None)
    async with started(server) as member:
        (entry,) = member.entries
        for hang in range(MAX_HANGS):
            assert member.status.state == "ok", hang
            with pytest.raises(RequestTimeout):
                await member.send(Call(entry, {}, timeout=0.005))
        assert member.status.state == "down"
        assert member.status.reason == (
            "no answer to 3 calls in a row; the last one: no answer to tools/call within 0.005 s"
        )

        server.answers["tools/call"] = text("done")
        assert await call(member) == "done"
    assert server.connections == 2


async def test_an_answer_in_between_makes_hangs_count_anew():
    server = served()
    async with started(server) as member:
        (entry,) = member.entries
        for round in range(MAX_HANGS * 2):
            server.answers["tools/call"] = text("done") if round % 2 else lambda _: None
            with suppress(RequestTimeout):
                await member.send(Call(entry, {}, timeout=10.0 if round % 2 else 0.005))
        assert member.status.state == "ok"
    assert server.connections == 1


# Tools


async def test_a_tool_that_cannot_be_offered_is_left_out_with_its_reason():
    server = served(
        tool("good"),
        tool("bomb", inputSchema=BOMB),
        tool("outside", inputSchema={"type": "object", "$ref": "https://example.org/x"}),
        tool("list", inputSchema={"type": "array"}),
        {"name": "nothing"},
        tool("good"),
        tool(""),
    )
    async with started(server) as member:
        missing = member.status.missing

        assert [each.tool.name for each in member.entries] == ["good"]
        names = ["nothing", "good", "bomb", "outside", "list", ""]
        for name, line in zip(names, missing, strict=True):
            assert f"tool '{name}'" in line
        assert member.status.state == "ok"


async def test_a_tool_whose_results_are_malformed_is_flagged_until_its_list_is_renewed():
    server = served(tool("x"), tool("y"), call={"content": 7})
    async with started(server) as member:
        for _ in range(2):
            with pytest.raises(RemoteProtocolError):
                await call(member)
        (flag,) = member.status.flagged
        state = member.status.state
        member._listed_until = 0.0
        await member.refresh()

        assert flag.startswith("tool 'x': 2 wrong results, the last one: malformed tools/call")
        assert state == "ok"  # the others may be as they should be
        assert member.status.flagged == ()


async def test_what_a_server_sends_in_vain_is_counted_over_all_its_starts():
    server = served(tool("x"))
    stray = {"jsonrpc": "2.0", "id": 99, "result": {}}
    async with started(server) as member:
        for _ in range(2):
            await call(member)
            server.send(b"garbage", stray)
            await call(member)
            await server.end()
            await settle()
        await call(member)  # starts it again
        server.send(b"garbage")
        await call(member)
        counted = member.status.dropped

    assert counted == {"garbage": 3, "answer to nothing": 2}
    assert member.status.dropped == counted


async def test_long_descriptions_are_cut():
    server = served(tool("x", description="d" * (MAX_DESCRIPTION + 1)), tool("y", description="d"))
    async with started(server) as member:
        long, short = (each.tool.description for each in member.entries)

    assert long == "d" * MAX_DESCRIPTION + " [cut]"
    assert short == "d"


async def test_tools_over_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(member_module, "MAX_TOOLS", 2)
    async with started(served(*(tool(name) for name in "abcde"))) as member:
        assert [each.tool.name for each in member.entries] == ["a", "b"]
        assert member.status.missing == ("the list is cut after 2 tools of 5",)


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_list_that_changed_is_asked_for_again(revision: str):
    changes: list[str] = []
    changed = asyncio.Event()

    def on_change() -> None:
        changes.append("changed")
        changed.set()

    server = served(tool("old"), revision=revision)
    server.answers["subscriptions/listen"] = lambda _: None
    async with started(server, on_change=on_change) as member:
        server.answers["tools/list"] = {"tools": [tool("new")]}
        changed.clear()
        server.notify("notifications/tools/list_changed")
        await changed.wait()

        assert [each.tool.name for each in member.entries] == ["new"]
        assert await call(member, "new") == "done"


async def test_a_change_while_the_list_is_on_its_way_is_not_lost():
    lists = [["old"], ["middle"], ["new"]]

    def answer(_: Json) -> Json:
        names = lists.pop(0)
        if names == ["middle"]:
            server.notify("notifications/tools/list_changed")
        return {"tools": [tool(name) for name in names]}

    server = served()
    server.answers["tools/list"] = answer
    async with started(server) as member:
        server.notify("notifications/tools/list_changed")
        await settle()
        await settle()

        assert [each.tool.name for each in member.entries] == ["new"]


async def test_a_server_whose_tools_change_all_the_time_is_asked_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(member_module, "REFRESH_GAP", 3600.0)
    server = served()
    async with started(server) as member:
        member._refreshed_at = -7200.0
        for _ in range(10):
            server.notify("notifications/tools/list_changed")
            await settle()
        assert len(server.sent("tools/list")) == 2  # the first one, and one for the first change
        assert await call(member) == "done"


async def test_other_lists_do_not_matter():
    server = served()
    async with started(server):
        server.notify("notifications/prompts/list_changed")
        server.notify("notifications/resources/list_changed")
        await settle()

    assert len(server.sent("tools/list")) == 1


@pytest.mark.parametrize(("ttl_ms", "seconds"), [(0, LIST_TTL), (5_000, 5.0)])
async def test_a_list_is_renewed_when_its_time_is_over(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, ttl_ms: int, seconds: float
):
    monkeypatch.setattr("interlock.client.cache.monotonic", clock)
    server = served()
    server.answers["tools/list"] = {"tools": [], "ttlMs": ttl_ms}
    async with started(server) as member:
        clock.now += seconds - 0.1
        await member.refresh()
        assert len(server.sent("tools/list")) == 1
        clock.now += 0.1
        await member.refresh()
        assert len(server.sent("tools/list")) == 2


async def test_a_list_that_cannot_be_renewed_stays(clock: Clock):
    server = served()
    async with started(server) as member:
        server.answers["tools/list"] = fail
        clock.now += LIST_TTL
        await member.refresh()

        assert [each.tool.name for each in member.entries] == ["x"]
        assert member.status.state == "ok"

        await member.refresh()  # not again and again: a mute server would hold up every turn
        assert len(server.sent("tools/list")) == 2
        clock.now += REFRESH_PAUSE
        await member.refresh()
        assert len(server.sent("tools/list")) == 3


async def test_why_a_list_was_not_renewed_is_told_without_secrets(
    clock: Clock, caplog: pytest.LogCaptureFixture
):
    async with Toolbox({"s": program(lists=1)}) as toolbox:
        clock.now += LIST_TTL
        await toolbox.refresh()
        assert toolbox.status["s"].state == "ok"

    assert "tools not refreshed: no list for ***" in caplog.text
    assert "canary" not in caplog.text


@pytest.mark.usefixtures("nothing_is_left")
async def test_a_server_that_a_refresh_finds_gone_is_down(
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
async def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent(arguments: Json):
    server = served(tool("x", inputSchema=NUMBER))
    async with started(server) as member:
        with pytest.raises(InvalidArguments, match=r"^s:x: "):
            await call(member, **arguments)
        assert await call(member, n=1) == "done"

    assert len(server.sent("tools/call")) == 1


async def test_arguments_are_checked_while_the_server_is_down():
    server = served(tool("x", inputSchema=NUMBER))
    async with started(server) as member:
        await server.end()
        await settle()
        with pytest.raises(InvalidArguments):
            await call(member)
    assert server.connections == 1


async def test_only_so_many_calls_run_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(member_module, "DEFAULT_CONCURRENCY", 2)
    running: list[asyncio.Event] = []

    async def hold(_: Json) -> Json:
        running.append(asyncio.Event())
        await running[-1].wait()
        return text("done")

    server = served(call=hold)
    async with started(server) as member:
        calls = [asyncio.create_task(call(member)) for _ in range(5)]
        await server.heard("tools/call", times=2)
        await settle()
        assert len(running) == 2
        for number in range(5):
            await server.heard("tools/call", times=min(5, number + 2))
            await settle()
            running[number].set()
        assert await asyncio.gather(*calls) == ["done"] * 5


async def test_a_call_that_is_cancelled_gives_its_place_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(member_module, "DEFAULT_CONCURRENCY", 1)
    server = served(call=lambda _: None)
    async with started(server) as member:
        holding, waiting = (asyncio.create_task(call(member)) for _ in range(2))
        await server.heard("tools/call")
        waiting.cancel()
        holding.cancel()
        await settle()
        server.answers["tools/call"] = text("done")

        assert await call(member) == "done"


# Closing


async def test_a_closed_member_stays_closed():
    server = served()
    async with started(server) as member:
        await member.close()
        await asyncio.gather(member.close(), member.close())

        assert (member.status.state, member.status.reason) == ("down", "the toolbox is closed")
        with pytest.raises(ServerUnavailable, match="the toolbox is closed"):
            await call(member)
    assert server.connections == 1


async def test_closing_ends_a_start_that_is_under_way():
    async def never(_: Json) -> Json:
        return await asyncio.get_running_loop().create_future()

    server = served()
    server.answers["initialize"] = never
    member = made(server)
    starting = asyncio.create_task(member.start())
    await server.heard("initialize")
    await member.close()

    await starting  # not cancelled: nobody cancelled it
    assert member.status.reason == "the toolbox is closed"


async def test_a_member_can_be_started_again_after_it_was_closed():
    server = served()
    async with started(server) as member:
        await member.close()
        await member.start()

        assert await call(member) == "done"


async def test_what_a_server_repeats_of_its_configuration_is_not_told():
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


async def test_a_server_that_hangs_is_told_with_what_it_said_last():
    script = "echo cannot reach the database >&2; while read -r line; do :; done"
    server = StdioServer(command="sh", args=("-c", script), connect_timeout=1.0)
    async with Toolbox({"mute": server}) as toolbox:
        reason = toolbox.status["mute"].reason

    assert reason == (
        "no answer from the server within 1 s; it last said: cannot reach the database; "
        'raise "connectTimeout" for a slow server'
    )


async def test_a_timeout_below_the_connect_timeout_limits_the_start():
    server = StdioServer(command="sh", args=("-c", "cat > /dev/null"), timeout=0.3)
    async with Toolbox({"mute": server}) as toolbox:
        reason = toolbox.status["mute"].reason

    assert reason == 'no answer from the server within 0.3 s; raise "timeout" for a slow server'


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


async def test_what_a_server_repeats_when_it_dies_is_not_told_to_who_called():
    server = StdioServer(
        command=sys.executable, args=("-I", "-c", LEAKY), env={"KEY": "canary-env"}
    )
    async with Toolbox({"leaky": server}) as toolbox:
        with pytest.raises(ServerExited, match=r"bad key \*\*\*") as caught:
            await toolbox.call("leaky:x")

    assert "canary" not in str(caught.value) + caught.value.stderr


async def test_what_stands_in_a_url_is_not_told_to_who_is_not_let_in():
    async with EvilHttp() as server:
        for method in ("server/discover", "tools/list"):
            answer = evil_http.honest(method, server.revision, server.tools)
            server.tell(method, "result", **(answer or {}))
        settings = HttpServer(url=f"{server.url}/${{KEY}}", auth="none")
        async with Toolbox({"s": settings}, environ={"KEY": "canary-path"}) as toolbox:
            with pytest.raises(AuthRequired, match=r"/mcp/\*\*\* wants to know") as caught:
                await toolbox.call("s:status", {"code": 401})

    assert "canary" not in str(caught.value)
