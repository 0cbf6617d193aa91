"""The servers of a toolbox are replaced while it is used."""

from __future__ import annotations

import asyncio

import pytest

from interlock.calls import Call
from interlock.errors import ConfigError, ServerUnavailable, UnknownTool
from interlock.toolbox import Toolbox
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool


def offering(*names: str) -> ScriptedServer:
    tools = {"tools": [tool(name) for name in names]}
    return ScriptedServer(LEGACY, {"tools/list": tools, "tools/call": text("done")})


def names(toolbox: Toolbox) -> list[str]:
    return [each.address for each in toolbox.tools]


async def test_replace_keeps_the_connection_of_an_unchanged_server():
    kept, old, new = offering("x"), offering("y"), offering("z")
    async with Toolbox({"kept": kept, "old": old}) as toolbox:
        entry = toolbox.find("old:y")
        before = toolbox.version
        await toolbox.replace({"kept": kept, "new": new})

        assert names(toolbox) == ["kept:x", "new:z"]
        assert toolbox.version > before
        assert len(kept.sent("tools/list")) == 1
        with pytest.raises(UnknownTool):
            await toolbox.call("old:y")
        with pytest.raises(ServerUnavailable, match="removed"):
            await toolbox.handle(Call(entry, {}))


async def test_running_call_finishes_on_the_replaced_server():
    old, new = offering("x"), offering("x")
    go_on, began = asyncio.Event(), asyncio.Event()

    async def slow(_: Json) -> Json:
        began.set()
        await go_on.wait()
        return text("old")

    old.answers["tools/call"] = slow
    new.answers["tools/call"] = text("new")
    async with Toolbox({"s": old}) as toolbox:
        call = asyncio.create_task(toolbox.call("s:x"))
        await began.wait()
        await toolbox.replace({"s": new})
        assert (await toolbox.call("s:x")).text == "new"
        go_on.set()
        assert (await call).text == "old"


async def test_invalid_server_name_replaces_no_server():
    async with Toolbox({"s": offering("x")}) as toolbox:
        with pytest.raises(ConfigError):
            await toolbox.replace({"a:b": offering("y")})
        assert names(toolbox) == ["s:x"]
