"""How many of our functions a call passes through, and how many turns of the event loop."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Annotated

import pytest
from pydantic import AfterValidator, Field

import interlock
from interlock import Depends, Server
from interlock.server import ToolHandler
from interlock.server.server_connection import ServerConnection
from interlock.transports.pipes import PipeTransport

OURS = str(Path(interlock.__file__).parent)
META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
    b'"io.modelcontextprotocol/clientCapabilities":{}}'
)
TRACE = b'"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e47%02d-00f067aa0ba902b7-01"'
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%b","arguments":{"a":1,"b":2}%b}}\n'  # noqa: E501
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}\n'
)

server = Server("sums")


@server.tool
async def text(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def typed(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def limited(a: Annotated[int, Field(ge=1)], b: Annotated[int, Field(le=9)]) -> int:
    """Add two numbers within limits."""
    return a + b


@server.tool
async def adapted(a: Annotated[int, AfterValidator(abs)], b: int) -> int:
    """Add two numbers, one of which pydantic reads."""
    return a + b


@server.tool
def plain(a: int, b: int) -> int:
    """Add two numbers in a thread."""
    return a + b


def layer(handle: ToolHandler) -> ToolHandler:
    """Pass calls on; this function is not counted, because it is not one of ours."""
    return lambda call: handle(call)


layered = Server("layered", around=[layer])
layered.tool(text, name="layered")
mounted = Server("mounted")
mounted.tool(text)
server.mount("mounted", mounted)
server.mount("", layered)


async def look_up(a: int) -> int:
    return a


def look_up_plainly(a: int) -> int:
    return a


@server.tool
async def dependent(a: int, b: int, found: int = Depends(look_up)) -> int:
    """Add two numbers, one of which a dependency has found."""
    return found + b


@server.tool
def plainly_dependent(a: int, b: int, found: int = Depends(look_up_plainly)) -> int:
    """Add two numbers in a thread, where the dependency runs as well."""
    return found + b


@server.tool
async def mixed(a: int, b: int, found: int = Depends(look_up_plainly)) -> int:
    """Add two numbers, one of which a dependency has found in a thread."""
    return found + b


Call = Callable[[bytes], Awaitable[bytes]]


@pytest.fixture
async def call() -> AsyncIterator[Call]:
    """Send a line to the server through pipes, and return the line that it answers."""
    loop = asyncio.get_running_loop()
    to_server, from_client = os.pipe()
    to_client, from_server = os.pipe()
    serving = asyncio.create_task(
        ServerConnection(server, PipeTransport(to_server, from_server)).serve()
    )

    async def call(line: bytes) -> bytes:
        answered = loop.create_future()
        loop.add_reader(to_client, lambda: answered.set_result(os.read(to_client, 65536)))
        os.write(from_client, line)
        answer: bytes = await answered
        loop.remove_reader(to_client)
        return answer

    yield call
    os.close(from_client)
    await serving
    for pipe in (to_server, to_client, from_server):
        os.close(pipe)


@pytest.mark.parametrize(
    ("tool", "era", "functions", "turns"),
    [
        ("text", "modern", 16, 5),
        ("typed", "modern", 18, 5),
        ("limited", "modern", 18, 5),
        ("adapted", "modern", 21, 5),
        ("plain", "modern", 24, 6),  # and what its thread does
        ("mounted_text", "modern", 16, 5),
        ("layered", "modern", 18, 5),
        ("dependent", "modern", 18 + 2, 5),
        ("plainly_dependent", "modern", 24, 6),
        ("mixed", "modern", 24 + 2, 6),
        ("text", "legacy", 18, 5),
        ("typed", "legacy", 20, 5),
        ("plain", "legacy", 26, 6),
        ("text", "modern, traced", 16 + 1, 5),  # the context of the trace is read
        ("text", "legacy, traced", 18 + 1, 5),
    ],
)
async def test_a_call_passes_through_few_functions_and_turns_of_the_loop(
    call: Call, monkeypatch, tool: str, era: str, functions: int, turns: int
):
    loop = asyncio.get_running_loop()
    passed: list[str] = []
    turn_of: list[int] = []  # of the loop, for each function passed
    turn = 0
    run_once = loop._run_once

    def count_turn() -> None:
        nonlocal turn
        turn += 1
        run_once()

    def note_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            passed.append(code.co_qualname)
            turn_of.append(turn)

    if era.startswith("legacy"):
        await call(INITIALIZE)
    meta = b"," + META if era.startswith("modern") else b""
    if era.endswith("traced"):
        meta = (meta[:-1] + b"," if meta else b',"_meta":{') + TRACE + b"}"
    metas = [meta % number if b"%" in meta else meta for number in (1, 2)]
    await call(CALL % (1, tool.encode(), metas[0]))  # what is done once, such as starting a thread
    monkeypatch.setattr(loop, "_run_once", count_turn)
    sys.setprofile(note_call)
    try:
        answer = await call(CALL % (2, tool.encode(), metas[1]))
    finally:
        sys.setprofile(None)

    assert b'"text":"3"' in answer
    # What comes after the answer was written is not on its way.
    end = passed.index("PipeTransport.send") + 1
    assert len(passed[:end]) <= functions, passed[:end]
    assert turn_of[end - 1] - turn_of[0] < turns
