"""The calls of one server."""

from __future__ import annotations

import asyncio

import pytest

from interlock import Server
from interlock.calls import Call, CallHandler, Outcome
from interlock.errors import InvalidArguments
from interlock.toolbox import Toolbox, server_calls
from interlock.transports import MAX_FRAME_BYTES
from tests.support.rows import each_row
from tests.support.scripted_server import Json, text, tool
from tests.toolbox.upstreams import call, served, settle, started

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@each_row("arguments", [{}, {"n": "one"}, {"n": 1.5}, {"n": None}])
async def test_invalid_arguments_are_refused_before_sending(arguments: Json):
    server = served(tool("x", inputSchema=NUMBER))
    async with started(server) as upstream:
        with pytest.raises(InvalidArguments, match=r"^s:x: "):
            await call(upstream, **arguments)
        assert await call(upstream, n=1) == "done"

    assert len(server.sent("tools/call")) == 1


async def test_layers_and_servers_get_arguments_as_they_were_meant():
    seen: list[Call] = []

    def watch(handle: CallHandler) -> CallHandler:
        async def watched(call: Call) -> Outcome:
            seen.append(call)
            return await handle(call)

        return watched

    server = served(tool("x", inputSchema=NUMBER))
    given = {"n": "7", "free": "8"}
    async with Toolbox({"s": server}, environ={}, around=[watch]) as toolbox:
        await toolbox.call("s:x", given)
        await toolbox.call("s:x", {"n": 9})
        with pytest.raises(InvalidArguments, match="no kept result 'r_1'"):
            await toolbox.call("interlock:read_result", {"id": "r_1", "line": "3"})

    assert [each["arguments"] for each in server.sent("tools/call")] == [
        {"n": 7, "free": "8"},
        {"n": 9},
    ]
    assert [each.arguments for each in seen[:2]] == [{"n": 7, "free": "8"}, {"n": 9}]
    assert [each.converted for each in seen] == [{"n": "text"}, None, {"line": "text"}]
    assert given == {"n": "7", "free": "8"}


async def test_arguments_are_validated_while_the_server_is_down():
    server = served(tool("x", inputSchema=NUMBER))
    async with started(server) as upstream:
        await server.end()
        await settle()
        with pytest.raises(InvalidArguments):
            await call(upstream)
    assert server.connections == 1


async def test_concurrent_calls_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_calls, "DEFAULT_CONCURRENCY", 2)
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
    monkeypatch.setattr(server_calls, "DEFAULT_CONCURRENCY", 1)
    server = served(call=lambda _: None)
    async with started(server) as upstream:
        holding, waiting = (asyncio.create_task(call(upstream)) for _ in range(2))
        await server.heard("tools/call")
        waiting.cancel()
        holding.cancel()
        await settle()
        server.answers["tools/call"] = text("done")

        assert await call(upstream) == "done"


@pytest.mark.slow("arguments of 16 MiB")
async def test_arguments_longer_than_any_message_reach_a_server_in_the_same_process():
    server = Server("texts")

    @server.tool
    async def length(text: str) -> int:
        return len(text)

    async with Toolbox({"texts": server}) as toolbox:
        result = await toolbox.call("texts:length", {"text": "x" * MAX_FRAME_BYTES})

    assert result.text == str(MAX_FRAME_BYTES)
