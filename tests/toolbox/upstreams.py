"""Servers of a toolbox for tests: scripted, started and called."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from interlock.calls import Call
from interlock.toolbox.upstream import (
    Upstream,
)
from interlock.transports.http_pool import HttpPool
from tests.support.scripted_server import LEGACY, Answer, Json, ScriptedServer, text, tool


def served(*tools: Json, revision: str = LEGACY, call: Answer | None = None) -> ScriptedServer:
    """Return a server with these tools, whose results are all "done"."""
    listed: Answer = {"tools": list(tools) or [tool("x")]}
    answers = {"tools/list": listed, "tools/call": call or text("done")}
    return ScriptedServer(revision, answers, capabilities={"tools": {"listChanged": True}})


@asynccontextmanager
async def started(server: Any, **options: Any) -> AsyncIterator[Upstream]:
    """Start an upstream of the server; close it afterwards."""
    upstream = made(server, **options)
    await upstream.start()
    yield upstream
    await upstream.close()


async def no_file(uri: str, call: Call) -> Any:
    raise AssertionError("these servers have no files")


def made(server: Any, on_change: Callable[[], None] = lambda: None, **options: Any) -> Upstream:
    return Upstream(
        "s",
        server,
        environ={},
        pool=HttpPool,
        on_change=on_change,
        read_file=no_file,
        revision=server.revision,
        **options,
    )


async def call(upstream: Upstream, name: str = "x", /, **arguments: Any) -> str:
    (entry,) = (each for each in upstream.entries if each.tool.name == name)
    call = Call(entry, arguments)
    upstream.validate(call)
    return (await upstream.send(call)).result.text
