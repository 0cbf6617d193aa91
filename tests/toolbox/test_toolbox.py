"""Many servers, one set of tools."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from interlock.client import client as client_module
from interlock.config import HttpServer, StdioServer, ToolFilter
from interlock.errors import (
    ConfigError,
    RemoteError,
    RequestTimeout,
    ServerUnavailable,
    UnknownTool,
)
from interlock.toolbox import Toolbox
from interlock.toolbox import toolbox as toolbox_module
from tests.support.clock import run_stepped
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, tool
from tests.toolbox.boxes import addresses, box_of, served
from tests.toolbox.upstreams import fail, settle


async def never(_: Json) -> Json:
    result: Json = await asyncio.get_running_loop().create_future()
    return result


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> dict[str, ScriptedServer]:
    """Servers in memory that stand for programs, by command."""
    programs: dict[str, ScriptedServer] = {}

    def transport(argv: list[str], **_: Any) -> Any:
        return programs[argv[0]].connect()

    monkeypatch.setattr(client_module, "StdioTransport", transport)
    return programs


# Starting


async def test_tools_are_in_the_order_of_the_servers():
    async with box_of(b=served("y", "x"), a=served("z")) as toolbox:
        assert addresses(toolbox) == ["b:y", "b:x", "a:z"]
        assert [entry.wire_name for entry in toolbox.tools] == ["b__y", "b__x", "a__z"]
        assert {name: status.state for name, status in toolbox.status.items()} == {
            "b": "ok",
            "a": "ok",
        }


async def test_servers_start_at_the_same_time():
    together = asyncio.Barrier(3)

    async def meet(_: Json) -> Json:
        await together.wait()  # no server is listed before all have been asked
        return {"tools": [tool("x")]}

    servers = {name: served(**{"tools/list": meet}) for name in "abc"}
    async with box_of(**servers) as toolbox:
        assert addresses(toolbox) == ["a:x", "b:x", "c:x"]


async def test_number_of_programs_starting_at_the_same_time_is_limited(
    monkeypatch: pytest.MonkeyPatch, programs: dict[str, ScriptedServer]
):
    monkeypatch.setattr(toolbox_module, "PROGRAMS_AT_ONCE", 2)
    starting: list[str] = []
    most = 0

    def start(name: str) -> ScriptedServer:
        async def listed(_: Json) -> Json:
            nonlocal most
            starting.append(name)
            most = max(most, len(starting))
            await settle()
            starting.remove(name)
            return {"tools": [tool("x")]}

        return served(**{"tools/list": listed})

    programs.update({name: start(name) for name in "abcde"})
    servers = {name: StdioServer(command=name) for name in programs}
    async with box_of(**servers) as toolbox:
        assert {status.state for status in toolbox.status.values()} == {"ok"}
    assert most == 2


async def test_program_waiting_for_its_turn_is_not_started_after_close(
    monkeypatch: pytest.MonkeyPatch, programs: dict[str, ScriptedServer]
):
    monkeypatch.setattr(toolbox_module, "PROGRAMS_AT_ONCE", 1)
    programs.update(slow=served(**{"tools/list": never}), last=served("x"))
    toolbox = box_of(slow=StdioServer(command="slow"), last=StdioServer(command="last"))
    opening = asyncio.create_task(toolbox.open())
    await settle()
    await toolbox.close()
    await opening

    assert toolbox.status["last"].reason == "the toolbox is closed"
    assert programs["last"].connections == 0


async def test_a_slow_server_does_not_delay_the_lists_of_the_others():
    go_on = asyncio.Event()

    async def wait(_: Json) -> Json:
        await go_on.wait()
        return {"tools": [tool("x")]}

    toolbox = box_of(slow=served(**{"tools/list": wait}), quick=served("y"))
    opening = asyncio.create_task(toolbox.open())
    await settle()
    assert toolbox.status["quick"].state == "ok"
    assert addresses(toolbox) == ["quick:y"]
    assert toolbox.status["slow"].state == "starting"
    assert (await toolbox.call("quick:y")).text == "y"

    go_on.set()
    await opening
    assert addresses(toolbox) == ["slow:x", "quick:y"]
    await toolbox.close()


class Broken:
    def connect(self) -> Any:
        raise RuntimeError("a bug of the server")


async def test_failed_servers_are_reported_and_do_not_stop_others():
    servers: dict[str, Any] = {
        "refuses": served(initialize=fail),
        "broken": Broken(),
        "web": HttpServer(url="https://example.org/mcp"),
        "unset": StdioServer(command="${NOT_SET}"),
        "missing": StdioServer(command="no-such-program-anywhere"),
        "good": served("x"),
    }
    async with Toolbox(servers, environ={}, revision=LEGACY) as toolbox:
        assert addresses(toolbox) == ["good:x"]
        status = toolbox.status

    assert [status[name].state for name in servers] == ["failed"] * 5 + ["ok"]
    assert status["refuses"].reason == "broken (-32000)"
    assert "a bug of the server" in status["broken"].reason
    assert "NOT_SET" in status["unset"].reason
    assert "no-such-program-anywhere" in status["missing"].reason
    for each in status.values():
        assert "\n" not in each.reason
        assert "is not available" not in each.reason


async def test_disabled_server_is_not_started(programs: dict[str, ScriptedServer]):
    programs["p"] = served("x")
    async with box_of(off=StdioServer(command="p", enabled=False)) as toolbox:
        assert toolbox.status["off"].state == "disabled"
        assert toolbox.tools == []
        assert not toolbox.upstream("off").is_due  # nor asked about it before each answer
        with pytest.raises(ServerUnavailable, match="disabled in the configuration"):
            await toolbox.call("off:x")
    assert programs["p"].connections == 0


async def test_toolbox_without_servers_has_no_tools():
    async with box_of() as toolbox:
        assert (toolbox.tools, toolbox.status) == ([], {})
        with pytest.raises(UnknownTool, match=r"no tool 'x'$"):
            await toolbox.call("x")


# What the configuration says


async def test_tools_are_filtered_by_the_configuration(programs: dict[str, ScriptedServer]):
    programs["git"] = served("git_log", "git_diff", "git_push", "admin")
    tools = ToolFilter(allow=("git_*",), deny=("*_push",))
    async with box_of(git=StdioServer(command="git", tools=tools)) as toolbox:
        assert addresses(toolbox) == ["git:git_log", "git:git_diff"]
        assert toolbox.status["git"].missing == (
            "tool 'git_push': not allowed by the configuration",
            "tool 'admin': not allowed by the configuration",
        )
        with pytest.raises(UnknownTool, match=r"git:admin is not offered: .* not allowed"):
            await toolbox.call("git:admin")
    assert programs["git"].sent("tools/call") == []


async def test_namespace_replaces_the_name_in_addresses(programs: dict[str, ScriptedServer]):
    programs["p"] = served("x")
    async with box_of(a=StdioServer(command="p", namespace="other")) as toolbox:
        assert addresses(toolbox) == ["other:x"]
        assert list(toolbox.status) == ["other"]


@each_row("name", ["", "a:b"])
def test_server_name_with_a_colon_is_refused(name: str):
    with pytest.raises(ConfigError, match="invalid server name"):
        box_of(**{name: served("x")})


def test_repeated_server_name_is_refused():
    with pytest.raises(ConfigError, match="two servers are named 'b'; give one another namespace"):
        box_of(a=StdioServer(command="p", namespace="b"), b=served("x"))


async def test_concurrency_limit_of_one_server_does_not_affect_another(
    programs: dict[str, ScriptedServer],
):
    programs["p"] = served("x", **{"tools/call": never})
    server = StdioServer(command="p", timeout=0.01, concurrency=1)
    async with box_of(p=server, other=served("y")) as toolbox:
        waiting = [asyncio.create_task(toolbox.call("p:x", timeout=5.0)) for _ in range(2)]
        await programs["p"].heard("tools/call")
        assert (await toolbox.call("other:y")).text == "y"  # while that one is at its limit
        assert len(programs["p"].sent("tools/call")) == 1
        for call in waiting:
            call.cancel()
        with pytest.raises(RequestTimeout, match=r"within 0\.01 s"):
            await toolbox.call("p:x")


async def test_wrong_file_is_refused_before_anything_starts(tmp_path: Path):
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"a": {"command": "no-such-program", "colour": "red"}}}')
    toolbox = Toolbox.from_config(file)

    assert list(toolbox.status) == ["a"]
    assert toolbox.status["a"].state == "starting"
    assert "colour" in toolbox.warnings[0]
    with pytest.raises(ConfigError, match=r"missing\.json"):
        Toolbox.from_config(tmp_path / "missing.json")


# Calling


async def test_server_that_dies_fails_only_its_own_calls():
    servers = {name: served("x", **{"tools/call": never}) for name in "ab"}
    async with box_of(**servers) as toolbox:
        calls = {name: asyncio.create_task(toolbox.call(f"{name}:x")) for name in servers}
        for server in servers.values():
            await server.heard("tools/call")
        await servers["a"].end()
        await asyncio.wait({calls["a"]})

        assert calls["a"].exception() is not None
        assert not calls["b"].done()
        assert [(entry.address, entry.stale) for entry in toolbox.tools] == [
            ("a:x", True),
            ("b:x", False),
        ]
        calls["b"].cancel()


async def test_refresh_lists_all_servers_concurrently(monkeypatch: pytest.MonkeyPatch):
    now = 1_000.0
    monkeypatch.setattr("interlock.toolbox.server_lists.monotonic", lambda: now)
    servers = {name: served("x") for name in "ab"}
    async with box_of(**servers) as toolbox:
        together = asyncio.Barrier(2)

        async def meet(_: Json) -> Json:
            await together.wait()
            return {"tools": [tool("y")]}

        for server in servers.values():
            server.answers["tools/list"] = meet
        await toolbox.refresh()
        assert addresses(toolbox) == ["a:x", "b:x"]
        now += 1_000.0
        await toolbox.refresh()
        assert addresses(toolbox) == ["a:y", "b:y"]


# Closing


async def test_close_fails_open_calls_and_can_be_repeated():
    server = served("x", **{"tools/call": never})
    toolbox = box_of(a=server)
    await toolbox.open()
    call = asyncio.create_task(toolbox.call("a:x"))
    await server.heard("tools/call")

    await asyncio.gather(toolbox.close(), toolbox.close())
    await toolbox.close()

    with pytest.raises(ConnectionError):
        await call
    with pytest.raises(ServerUnavailable, match="the toolbox is closed"):
        await toolbox.call("a:x")
    assert server.connections == 1


async def test_toolbox_closed_while_opening_leaves_nothing():
    server = served(initialize=never)
    toolbox = box_of(a=server, b=served("x"))
    opening = asyncio.create_task(toolbox.open())
    await server.heard("initialize")
    await toolbox.close()

    await opening
    assert {status.state for status in toolbox.status.values()} == {"down"}


def test_open_with_an_idle_timeout_returns_while_a_mute_server_is_starting():
    async def use() -> None:
        toolbox = box_of(mute=served(initialize=never), quick=served("x"))
        await toolbox.open(idle_timeout=2)

        assert [each.state for each in toolbox.status.values()] == ["starting", "ok"]
        assert addresses(toolbox) == ["quick:x"]
        await toolbox.close()
        assert toolbox.status["mute"].state == "down"

    run_stepped(use())


@each_row("name", ["slow:x", "slow__x"])
def test_a_call_waits_for_a_server_that_is_still_starting(name: str):
    async def use() -> None:
        async def late(_: Json) -> Json:
            await asyncio.sleep(8)
            return {"tools": [tool("x")]}

        async with asyncio.timeout(60):
            toolbox = box_of(slow=served(**{"tools/list": late}))
            await toolbox.open(idle_timeout=2)
            with pytest.raises(ServerUnavailable, match="it is still starting"):
                await toolbox.call(name, timeout=3)
            with pytest.raises(UnknownTool):
                await toolbox.call("other:x", timeout=3)
            assert asyncio.get_running_loop().time() == pytest.approx(5)
            assert (await toolbox.call(name)).text == "x"
            with pytest.raises(UnknownTool):
                await toolbox.call("slow:y")
            await toolbox.close()

    run_stepped(use())


def test_a_call_that_waits_for_a_start_learns_why_it_failed():
    async def use() -> None:
        async def refused(_: Json) -> Json:
            await asyncio.sleep(8)
            raise RemoteError(-32603, "no database")

        toolbox = box_of(slow=served(initialize=refused))
        await toolbox.open(idle_timeout=2)
        with pytest.raises(ServerUnavailable, match="no database"):
            await toolbox.call("slow:x")
        await toolbox.close()

    run_stepped(use())


async def test_cancelled_open_closes_the_servers_that_have_started():
    slow, quick = served(initialize=never), served("x")
    toolbox = box_of(slow=slow, quick=quick)
    opening = asyncio.create_task(toolbox.open())
    await settle()
    assert toolbox.status["quick"].state == "ok"
    opening.cancel()
    await asyncio.wait({opening})

    assert opening.cancelled()
    with pytest.raises(ServerUnavailable):
        await toolbox.call("quick:x")
