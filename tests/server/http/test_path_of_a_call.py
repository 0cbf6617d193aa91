"""How many of our functions a call over HTTP passes through."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import interlock
from interlock import Server
from tests.server.http.conftest import Http, Reply

OURS = str(Path(interlock.__file__).parent)
ARGUMENTS = {"a": 1, "b": 2}

server = Server("sums")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def add_in_thread(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def passed(call: Callable[[], Awaitable[Reply]]) -> list[str]:
    """Return the names of the functions that a call passes through."""
    functions: list[str] = []

    def note_call(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS):
            functions.append(code.co_qualname)

    for _ in range(2):
        await call()  # what is done once, such as reading what the client states
    sys.setprofile(note_call)
    try:
        reply = await call()
    finally:
        sys.setprofile(None)
    assert (reply.code, reply.json["result"]["content"]) == (200, [{"type": "text", "text": "3"}])
    return functions


@pytest.fixture
async def http() -> Any:
    http = Http(server.asgi())
    yield http
    await http.app.close()


@pytest.mark.parametrize(("tool", "limit"), [("add", 22), ("add_in_thread", 33)])
async def test_a_modern_call_passes_through_few_functions(http, tool, limit):
    functions = await passed(lambda: http.call(tool, ARGUMENTS))

    assert len(functions) <= limit, functions


@pytest.mark.parametrize(("tool", "limit"), [("add", 24), ("add_in_thread", 36)])
async def test_a_legacy_call_passes_through_few_functions(http, tool, limit):
    client = await http.initialize()
    functions = await passed(lambda: client.call(tool, ARGUMENTS))

    assert len(functions) <= limit, functions


async def test_a_legacy_call_that_is_answered_at_once_starts_no_task_and_no_timer(
    http, monkeypatch
):
    client = await http.initialize()
    await client.call("add", ARGUMENTS)
    monkeypatch.setattr(http.app._requests, "is_ticking", True)
    loop = asyncio.get_running_loop()
    reply = client.begin_call("add", ARGUMENTS)
    monkeypatch.setattr(loop, "create_task", None)
    monkeypatch.setattr(loop, "call_at", None)
    for _ in range(3):
        await asyncio.sleep(0)

    assert reply.task.done()
    assert reply.code == 200
