"""The way of a call through a toolbox."""

from __future__ import annotations

import logging

import pytest

from interlock.errors import InvalidArguments, RemoteError
from tests.support.scripted_server import Json, text, tool
from tests.toolbox.boxes import box_of, served
from tests.toolbox.upstreams import fail

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


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
