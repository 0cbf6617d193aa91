"""Servers of a toolbox for tests: scripted, started and called."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from interlock.calls import Call
from interlock.config import StdioServer
from interlock.errors import RemoteError
from interlock.toolbox.upstream import Upstream
from interlock.transports.http_pool import HttpPool
from tests.support.scripted_server import LEGACY, Answer, Json, ScriptedServer, text, tool


def served(*tools: Json, revision: str = LEGACY, call: Answer | None = None) -> ScriptedServer:
    """Return a server with these tools, whose results are all "done"."""
    listed: Answer = {"tools": list(tools) or [tool("x")]}
    answers = {"tools/list": listed, "tools/call": call or text("done")}
    return ScriptedServer(revision, answers, capabilities={"tools": {"listChanged": True}})


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(20):
        await asyncio.sleep(0)


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
    upstream.calls.validate(call)
    return (await upstream.calls.send(call)).result.text


def fail(_: Json) -> Json:
    """Answer with an error."""
    raise RemoteError(-32000, "broken")


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


def listing_program(lists: int) -> StdioServer:
    """Return a program that tells its secret when it is asked for more lists than these."""
    args = ("-I", "-c", PROGRAM, str(lists))
    return StdioServer(command=sys.executable, args=args, env={"KEY": "canary-env"})
