"""Exceptions of a tool, as the client and the log get them."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from interlock import Client, Server, ToolError
from interlock.errors import LocalProtocolError, RemoteError
from interlock.server.wire_errors import log_name
from interlock.types import CallToolResult
from tests.support.rows import each_row

CANARY = "canary-77aa"


@pytest.fixture
def server() -> Server:
    return Server("tools")


async def call(server: Server, name: str, /, **arguments: Any) -> CallToolResult:
    async with Client.memory(server) as client:
        return await client.call_tool(name, arguments)


def reference_in(text: str) -> str:
    assert "the server's log on stderr has the details under " in text
    return text.rpartition(" ")[2]


async def test_a_tool_error_is_reported_to_the_model(server: Server, caplog):
    @server.tool
    def refuse() -> str:
        raise ToolError("the note does not exist")

    result = await call(server, "refuse")

    assert result.is_error
    assert result.text == "the note does not exist"
    assert caplog.text == ""


FAILURES = [
    ValueError(CANARY),
    SystemExit(1),
    KeyboardInterrupt(),
    ExceptionGroup(CANARY, [ToolError(CANARY), OSError(CANARY)]),
    BaseExceptionGroup(CANARY, [KeyboardInterrupt()]),
    RecursionError(CANARY),
    MemoryError(),
    asyncio.CancelledError(),
    GeneratorExit(),
    StopIteration(CANARY),
    StopAsyncIteration(),
    TimeoutError(CANARY),
    RemoteError(-1, CANARY),
    LocalProtocolError(CANARY),
]


@each_row("error", FAILURES)
@each_row("kind", ["plain", "async", "limited"])
async def test_any_other_exception_is_logged_under_a_reference_and_the_server_continues(
    caplog, error, kind
):
    server = Server("tools")
    caplog.clear()

    def fail() -> str:
        raise error

    async def fail_async() -> str:
        raise error

    if kind == "limited":
        server.tool(name="fail", timeout=10, concurrency=1)(fail_async)
    else:
        server.tool(name="fail")(fail if kind == "plain" else fail_async)
    server.tool(name="fine")(lambda: "fine")

    async with Client.memory(server) as client:
        result = await client.call_tool("fail")
        after = await client.call_tool("fine")

    assert result.is_error
    assert result.text.startswith("tool fail ")
    assert CANARY not in result.text
    assert reference_in(result.text) in caplog.text
    assert "Traceback" in caplog.text
    assert after.text == "fine"


def test_the_log_is_named_without_its_path(tmp_path: Path):
    handler = logging.FileHandler(tmp_path / "notes.log")
    log = logging.getLogger("interlock")
    log.addHandler(handler)
    try:
        assert log_name() == "the server's log notes.log"
    finally:
        log.removeHandler(handler)
        handler.close()
    assert log_name() == "the server's log on stderr"
