"""Many servers, one set of tools."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.calls import Caller
from interlock.client import client as client_module
from interlock.config import HttpServer, StdioServer, ToolFilter
from interlock.errors import (
    ConfigError,
    InvalidArguments,
    RemoteError,
    RequestTimeout,
    ServerUnavailable,
    UnknownTool,
)
from interlock.toolbox import Toolbox
from interlock.toolbox import toolbox as toolbox_module
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def served(*names: str, **answers: Any) -> ScriptedServer:
    """A server with these tools, each of which says its own name."""
    tools = {"tools": [tool(name) for name in names]}
    call: Callable[[Json], Json] = lambda params: text(params["name"])  # noqa: E731
    return ScriptedServer(answers={"tools/list": tools, "tools/call": call, **answers})


def box_of(**servers: Any) -> Toolbox:
    return Toolbox(servers, environ={}, revision=LEGACY)


def addresses(toolbox: Toolbox) -> list[str]:
    return [entry.address for entry in toolbox.tools]


async def never(_: Json) -> Json:
    result: Json = await asyncio.get_running_loop().create_future()
    return result


def fail(_: Json) -> Json:
    raise RemoteError(-32000, "broken")


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


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


async def test_programs_that_start_at_once_are_limited(
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


@pytest.mark.parametrize("name", ["", "a:b"])
def test_server_name_with_a_colon_is_refused(name: str):
    with pytest.raises(ConfigError, match="invalid server name"):
        box_of(**{name: served("x")})


def test_repeated_server_name_is_refused():
    with pytest.raises(ConfigError, match="two servers are named 'b'; give one another namespace"):
        box_of(a=StdioServer(command="p", namespace="b"), b=served("x"))


async def test_limits_are_per_server(programs: dict[str, ScriptedServer]):
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


# Finding


async def test_tool_is_called_by_address_or_wire_name():
    async with box_of(a=served("x", "y.z"), 日本=served("x")) as toolbox:
        for entry in toolbox.tools:
            for name in (entry.address, entry.wire_name):
                assert toolbox.find(name) is entry
                assert (await toolbox.call(name)).text == entry.tool.name


async def test_tool_name_of_several_servers_is_warned_about_once(caplog: pytest.LogCaptureFixture):
    async with box_of(a=served("x", "y"), b=served("x"), c=served("z")) as toolbox:
        assert len(toolbox.tools) == 4
        toolbox._changed()
        assert len(toolbox.tools) == 4

    assert caplog.messages == ["several servers offer tool 'x': a, b"]


async def test_bare_tool_name_is_refused_with_a_suggestion():
    async with box_of(a=served("get_time", "x"), b=served("x")) as toolbox:
        with pytest.raises(UnknownTool, match=r"no tool 'x'; did you mean a:x or b:x\?"):
            await toolbox.call("x")
        with pytest.raises(UnknownTool, match=r"did you mean a:get_time\?"):
            await toolbox.call("a:get_tiem")


async def test_unknown_tool_error_says_why_it_is_missing():
    async with box_of(down=served(initialize=fail), up=served("x")) as toolbox:
        for name, problem in (
            ("down:x", r"server 'down' is not available: broken"),
            ("nobody:y", r"no tool 'nobody:y'"),
            ("up:y", r"no tool 'up:y'; did you mean up:x\?"),
        ):
            with pytest.raises((UnknownTool, ServerUnavailable), match=problem):
                toolbox.find(name)


async def test_skipped_tool_is_named_when_it_is_called():
    tools = {"tools": [tool("x"), {"name": "bad"}]}
    async with box_of(a=served(**{"tools/list": tools})) as toolbox:
        with pytest.raises(UnknownTool, match="a:bad is not offered: tool 'bad' is malformed"):
            await toolbox.call("a:bad")


async def test_similar_names_get_different_wire_names():
    servers = {"a_": served("b"), "a": served("_b", "b"), "а": served("b")}  # the last: Cyrillic
    async with box_of(**servers) as toolbox:
        names = [entry.wire_name for entry in toolbox.tools]
        assert len(set(names)) == 4
        for entry in toolbox.tools:
            await toolbox.call(entry.wire_name)

    for name, server in servers.items():
        expected = ["_b", "b"] if name == "a" else ["b"]
        assert [each["name"] for each in server.sent("tools/call")] == expected


async def test_wire_name_does_not_depend_on_other_servers():
    async with box_of(a=served("x_", "y")) as alone:
        before = [entry.wire_name for entry in alone.tools]
    async with box_of(b=served("x_", "y"), a=served("x_", "y")) as together:
        assert [entry.wire_name for entry in together.tools][2:] == before


async def test_wire_name_clash_is_logged_as_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("interlock.toolbox.names.wire_name", lambda _server, _name: "same")
    async with box_of(a=served("x"), b=served("x")) as toolbox:
        assert addresses(toolbox) == ["a:x"]
        assert toolbox.find("same").address == "a:x"
    assert "tool b:x has the wire name of another one" in caplog.text


# Calling


async def test_arguments_are_validated_before_sending():
    tools = {"tools": [tool("x", inputSchema=NUMBER)]}
    server = served(**{"tools/list": tools})
    async with box_of(a=server) as toolbox:
        with pytest.raises(InvalidArguments, match=r"^a:x: "):
            await toolbox.call("a__x", {"n": "secret"})
        with pytest.raises(InvalidArguments):
            await toolbox.call("a:x")
        await toolbox.call("a:x", {"n": 1})

    (sent,) = server.sent("tools/call")
    assert sent == {"name": "x", "arguments": {"n": 1}}


async def test_progress_reaches_the_caller():
    async def work(params: Json) -> Json:
        token = params["_meta"]["progressToken"]
        server.notify("notifications/progress", progressToken=token, progress=1)
        return text("done")

    server = served("x", **{"tools/call": work})
    steps: list[float] = []
    async with box_of(a=server) as toolbox:
        await toolbox.call("a:x", progress=lambda step: steps.append(step.progress))

    assert steps == [1.0]


async def test_calls_are_logged_without_arguments_and_results(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    answers = iter([text("a secret"), text("a secret", isError=True)])
    server = served("x", **{"tools/call": lambda _: next(answers)})
    async with box_of(a=server) as toolbox:
        for _ in range(2):
            await toolbox.call("a:x", {"password": "a secret"})
        server.answers["tools/call"] = fail
        with pytest.raises(RemoteError):
            await toolbox.call("a:x", {"password": "a secret"})

    said = [record.getMessage() for record in caplog.records if record.name == "interlock.toolbox"]
    assert [line.partition(" in ")[0] for line in said] == [
        "tool a:x: ok",
        "tool a:x: tool error",
        "tool a:x: failed",
    ]
    assert "secret" not in caplog.text


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


async def test_open_with_an_idle_timeout_returns_while_a_mute_server_is_starting():
    mute, quick = served(initialize=never), served("x")
    toolbox = box_of(mute=mute, quick=quick)
    await toolbox.open(idle_timeout=0.2)

    assert [each.state for each in toolbox.status.values()] == ["starting", "ok"]
    assert addresses(toolbox) == ["quick:x"]
    await toolbox.close()
    assert toolbox.status["mute"].state == "down"


async def test_cancelled_open_closes_what_has_started():
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


# Suggestions for names that do not exist


@pytest.mark.parametrize(
    ("surface", "name", "suggestion"),
    [
        ("cli", "a:serch", "; did you mean a:search?"),
        ("cli", "delete", "; did you mean a:delete?"),
        ("cli", "a:something-else", ""),
        ("agent", "a__serch", "; did you mean a__search?"),
        ("agent", "a__delet", ""),  # not read-only
        ("agent", "search", "; did you mean a__search?"),
    ],
)
async def test_suggestion_is_close_and_for_models_a_read_only_wire_name(
    surface: Any, name: str, suggestion: str
):
    read_only = tool("search", annotations={"readOnlyHint": True})
    tools = {"tools": [read_only, tool("delete")]}
    async with box_of(a=served(**{"tools/list": tools})) as toolbox:
        with pytest.raises(UnknownTool) as caught:
            await toolbox.call(name, caller=Caller(surface=surface))

    assert str(caught.value) == f"no tool {name!r}{suggestion}"
