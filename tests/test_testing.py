"""`interlock.testing.call`: results, and the exceptions of the functions themselves."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

import pytest

from interlock import Client, Server, ToolError
from interlock.errors import InvalidArguments, LocalProtocolError, RemoteError
from interlock.server.debugging import debugged
from interlock.testing import call
from interlock.types import CallToolResult
from tests.support.rows import each_row


class OutOfStock(Exception):
    """An exception of the author's own."""


@asynccontextmanager
async def opened(_server: Server) -> AsyncIterator[None]:
    entered.append("entered")
    yield
    entered.append("left")


entered: list[str] = []
server = Server("shop", lifespan=opened)


@server.tool
def add(a: int, b: int = 1) -> int:
    return a + b


@server.tool
async def order(item: str) -> str:
    raise OutOfStock(item)


@server.tool
def plain_order(item: str) -> str:
    raise OutOfStock(item)


@server.tool
def deliver(on: date) -> str:
    raise ToolError(f"closed on {on:%d %B}")


@server.tool
async def refuse() -> CallToolResult:
    """Return an error, after a failure that the function has handled."""
    async with Client(server) as client:
        await client.call_tool("order", {"item": "inner"})
    return CallToolResult(content=[], structured_content={"why": "no"}, is_error=True)


@server.tool(task=True)
def slow_order(item: str) -> str:
    raise OutOfStock(item)


def test_call_returns_the_result_within_the_lifespan_of_the_server():
    entered.clear()

    assert call(server, "add", a=2, b=3).structured == 5
    assert call(server, "add", a=2).structured == 3
    assert entered == ["entered", "left"] * 2


@each_row(
    ("tool", "arguments", "error", "text"),
    [
        ("order", {"item": "tea"}, OutOfStock, "tea"),
        ("plain_order", {"item": "tea"}, OutOfStock, "tea"),
        ("slow_order", {"item": "tea"}, OutOfStock, "tea"),
        ("deliver", {"on": date(2026, 1, 1)}, ToolError, "closed on 01 January"),
        ("refuse", {}, ToolError, ""),
        ("add", {"a": "x"}, InvalidArguments, "a: expected `int`, got `str`"),
        ("add", {"a": 1, "c": 2}, InvalidArguments, "unknown argument 'c'"),
        ("nope", {}, RemoteError, "unknown tool 'nope'"),
    ],
)
def test_call_raises_the_exception_of_the_function(
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    arguments: dict[str, Any],
    error: type[Exception],
    text: str,
):
    with pytest.raises(Exception) as caught:
        call(server, tool, **arguments)
    if error is OutOfStock:
        monkeypatch.setattr(server, "answer", debugged(server.answer))  # as with debug=True
        with pytest.raises(OutOfStock):
            call(server, tool, **arguments)
        monkeypatch.undo()

    assert type(caught.value) is error
    assert text in str(caught.value)
    if error is OutOfStock:
        assert file_of(caught.value) == __file__


def file_of(error: BaseException) -> str:
    """Return the file in which an exception was raised."""
    return traceback.extract_tb(error.__traceback__)[-1].filename


async def test_call_in_an_event_loop_is_refused_with_the_way_out():
    with pytest.raises(LocalProtocolError, match=r"write: async with Client\(server\) as client"):
        call(server, "add", a=1)


def test_arguments_may_be_named_like_the_parameters_of_call():
    other = Server("other")

    @other.tool
    def join(server: str, tool: str) -> str:
        return server + tool

    assert call(other, "join", server="a", tool="b").text == "ab"


@each_row(
    "make",
    [
        lambda: Client("server.py"),
        lambda: Client(Server),  # type: ignore[arg-type]  # is refused
        lambda: Client({"mcpServers": {}}),  # type: ignore[arg-type]  # is refused
    ],
)
def test_client_refuses_an_object_it_cannot_connect_to_and_names_the_remedy(
    make: Callable[[], Client],
):
    with pytest.raises(LocalProtocolError, match="pass a Server object or an http URL, or use"):
        make()
