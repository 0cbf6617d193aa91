"""Tools of interlock itself: found, listed and called as those of servers are."""

from __future__ import annotations

import pytest
from msgspec import Raw

from interlock.calls import Call, Caller, CallHandler, Outcome
from interlock.errors import ConfigError, InvalidArguments, UnknownResource
from interlock.toolbox import Toolbox
from interlock.toolbox.own_tools import OwnTool
from interlock.types import Tool
from tests.support.scripted_server import ScriptedServer, text, tool

MODEL = Caller(surface="agent")


def large() -> ScriptedServer:
    answer = text("a long line\n" * 20_000)
    return ScriptedServer(answers={"tools/list": {"tools": [tool("x")]}, "tools/call": answer})


async def test_kept_result_is_read_through_the_layers_of_every_call():
    passed: list[str] = []

    def log(handle: CallHandler) -> CallHandler:
        async def logged(call: Call) -> Outcome:
            outcome = await handle(call)
            passed.append(f"{call.entry.address} {outcome.kept}")
            return outcome

        return logged

    async with Toolbox({"s": large()}, environ={}, around=[log]) as toolbox:
        result = await toolbox.call("s:x", caller=MODEL)
        id = (result.meta or {})["interlock/result"]["id"]
        rest = await toolbox.call(
            "interlock__read_result", {"id": id, "line": 19_999}, caller=MODEL
        )
        whole = await toolbox.read_resource("interlock", f"interlock://results/{id}", caller=MODEL)

    assert rest.text == "a long line\n" * 2 + "\nlines 19,999–20,000 of 20,000; this is the end"
    assert whole.text == "a long line\n" * 20_000
    assert passed == [
        f"s:x {id}",
        f"interlock:read_result {id}",
        f"interlock:interlock://results/{id} {id}",
    ]


async def test_reader_is_not_among_the_tools_of_servers_but_can_be_called():
    async with Toolbox({"s": large()}, environ={}) as toolbox:
        assert [each.address for each in toolbox.tools] == ["s:x"]
        with pytest.raises(InvalidArguments, match="'id'"):
            await toolbox.call("interlock:read_result", {})
        with pytest.raises(InvalidArguments, match="no kept result 'r_1'"):
            await toolbox.call("interlock:read_result", {"id": "r_1"})
        with pytest.raises(UnknownResource):
            await toolbox.read_resource("interlock", "file:///etc/passwd")


async def test_own_tool_is_visible_only_to_callers_that_is_for_accepts():
    async def approve(call: Call) -> Outcome:
        return Outcome(Raw(b'{"content":[{"type":"text","text":"%b"}]}' % call.id.encode()))

    own = OwnTool(
        Tool(name="approve", input_schema={"type": "object"}),
        approve,
        lambda caller: caller.client == "claude-code",
    )
    async with Toolbox({}, own_tools=[own]) as toolbox:
        for client, names in (("claude-code", ["read_result", "approve"]), ("x", ["read_result"])):
            found = toolbox.own.entries_for(Caller(client=client))
            assert [each.tool.name for each in found] == names
        assert (await toolbox.call("interlock:approve")).text.startswith("c_")


def test_no_server_may_be_named_as_our_own_tools():
    with pytest.raises(ConfigError, match="'interlock' is reserved"):
        Toolbox({"interlock": large()})
