"""Finding a tool, and what is suggested for a name that does not exist."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.calls import Caller
from interlock.errors import ServerUnavailable, UnknownTool
from interlock.gateway.forwarding.executors import NAMES
from tests.support.clock import SetClock
from tests.support.rows import each_row
from tests.support.scripted_server import tool
from tests.toolbox.boxes import addresses, box_of, served
from tests.toolbox.upstreams import fail


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


async def test_unknown_tool_error_states_why_the_tool_is_missing():
    async with box_of(down=served(initialize=fail), up=served("x")) as toolbox:
        for name, problem in (
            ("down:x", r"server 'down' is not available: broken"),
            ("nobody:y", r"no tool 'nobody:y'"),
            ("up:y", r"no tool 'up:y'; did you mean up:x\?"),
        ):
            with pytest.raises((UnknownTool, ServerUnavailable), match=problem):
                toolbox.find(name)


async def test_unlisted_tool_of_a_server_with_a_search_names_the_tool_to_call():
    async with box_of(gw=served(NAMES["read"], "x"), other=served("x")) as toolbox:
        words = f"; call gw:{NAMES['read']} with name=time__now and arguments="
        with pytest.raises(UnknownTool, match=words):
            toolbox.find("gw:time__now")
        with pytest.raises(UnknownTool, match=r"no tool 'other:time__now'$"):
            toolbox.find("other:time__now")


async def test_error_about_a_server_without_tools_has_the_time_of_the_next_try(clock: SetClock):
    async with box_of(down=served(initialize=fail)) as toolbox:
        with pytest.raises(ServerUnavailable) as caught:
            toolbox.find("down:x")

    assert (caught.value.code, caught.value.retry_after) == ("server_down", 0.5)


async def test_skipped_tool_is_named_when_it_is_called():
    tools = {"tools": [tool("x"), {"name": "bad", "inputSchema": 7}]}
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


@each_row(
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
