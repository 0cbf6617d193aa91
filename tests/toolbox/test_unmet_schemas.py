"""Results that break their tool's output schema: kept, with a warning that the reader sees."""

from __future__ import annotations

import re
from typing import Any

import pytest

from interlock.agent import text_of
from interlock.calls import Call, Caller
from interlock.errors import ConnectionClosed, RemoteError, RemoteProtocolError, RequestTimeout
from interlock.toolbox import Toolbox
from tests.support.rows import each_row
from tests.support.scripted_server import Json, text, tool
from tests.toolbox.upstreams import served

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}
WRONG = text("one", structuredContent={"n": "1"}, _meta={"a": 1})
WARNING = "the tool ran, but its result does not fit its outputSchema: n: '1' is not an integer"


def toolbox_of(result: Any, **options: Any) -> Toolbox:
    return Toolbox(
        {"s": served(tool("x", outputSchema=NUMBER), call=result)}, environ={}, **options
    )


@each_row(
    "caller, shown, is_error",
    [
        (Caller(), "one", False),
        (Caller(surface="agent"), "one", False),
        (Caller(surface="claude"), f"one\nwarning: {WARNING}", False),
        # Clients since 2025-06-18 drop a success that breaks the schema.
        (Caller(surface="mcp", revision="2025-06-18"), f"one\nwarning: {WARNING}", True),
        (Caller(surface="mcp", revision="2025-03-26"), f"one\nwarning: {WARNING}", False),
    ],
)
async def test_each_reader_gets_the_whole_result_and_the_warning(
    caller: Caller, shown: str, is_error: bool
):
    async with toolbox_of(WRONG) as toolbox:
        outcome = await toolbox.handle(Call(toolbox.find("s:x", caller), {}, caller))
        result, (flag,) = outcome.result, toolbox.status["s"].flagged

    assert (result.text, result.is_error, result.structured) == (shown, is_error, {"n": "1"})
    assert result.meta == {"a": 1, "interlock/warning": WARNING}
    assert text_of(result).endswith(f"\nwarning: {WARNING}")
    assert outcome.is_error is False  # records state that the tool ran
    assert WARNING in flag


async def test_a_result_that_fits_has_no_warning_and_a_strict_toolbox_refuses_the_others():
    async with toolbox_of(text("1", structuredContent={"n": 1})) as toolbox:
        result = await toolbox.call("s:x", {})
    async with toolbox_of(WRONG, strict_output=True) as toolbox:
        with pytest.raises(RemoteProtocolError, match=r"is not an integer; the tool ran$"):
            await toolbox.call("s:x", {})

    assert (result.warning, result.meta) == ("", None)


async def silence(_: Json) -> None:
    """Never answer."""


def refusal(_: Json) -> Json:
    raise RemoteError(-32602, "no such thing")


@each_row(
    "answer, kind, end",
    [
        (silence, RequestTimeout, "within 0.01 s; the tool may have run"),
        ({"content": 5}, RemoteProtocolError, "; the tool ran"),
        (refusal, RemoteError, "no such thing (-32602)"),
    ],
)
async def test_an_error_after_the_request_says_whether_the_tool_ran(
    answer: Any, kind: type[Exception], end: str
):
    async with toolbox_of(answer) as toolbox:
        with pytest.raises(kind, match=f"{re.escape(end)}$"):
            await toolbox.call("s:x", {}, timeout=0.01)


async def test_a_lost_server_may_have_run_the_tool():
    async def end(_: Json) -> None:
        await server.end()

    server = served(tool("x"), call=end)
    async with Toolbox({"s": server}, environ={}) as toolbox:
        with pytest.raises(ConnectionClosed, match=r"the tool may have run$"):
            await toolbox.call("s:x", {})
