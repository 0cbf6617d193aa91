"""Calls of tools: arguments, results, failures, limits."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import os
import threading
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from msgspec import Meta

from interlock import Client, Context, Server, ToolError
from interlock.errors import (
    ClientRefused,
    InvalidArguments,
    MessageTooLarge,
    RemoteError,
    RequestTimeout,
)
from interlock.types import (
    CallToolResult,
    TextContent,
    ToolAnnotations,
)
from tests.support.rows import each_row

CANARY = "canary-77aa"


@dataclass
class Hit:
    name: str
    score: float


@dataclass(frozen=True)
class Place:
    city: str
    country: str = "JP"


@dataclass(slots=True)
class Range:
    first: int
    last: int = 9


@dataclass
class Trip:
    to: Place
    days: int = 1
    note: str = "none"
    stops: list[Place] = field(default_factory=list)
    span: Range | None = None

    def __post_init__(self) -> None:
        self.note = self.note.upper()


@pytest.fixture
def server() -> Server:
    return Server("tools")


async def call(server: Server, name: str, /, **arguments: Any) -> CallToolResult:
    async with Client.memory(server) as client:
        return await client.call_tool(name, arguments)


@each_row(
    "sent, returned",
    [
        ({"to": {"city": "Kyoto"}}, {"to": {"city": "Kyoto", "country": "JP"}}),
        (
            {"to": {"city": "Rome", "country": "IT"}, "days": 4, "note": "x"},
            {"to": {"city": "Rome", "country": "IT"}, "days": 4, "note": "X"},
        ),
        (
            {"to": {"city": "Kyoto"}, "stops": [{"city": "Nara"}], "span": {"first": 1}},
            {
                "to": {"city": "Kyoto", "country": "JP"},
                "stops": [{"city": "Nara", "country": "JP"}],
                "span": {"first": 1, "last": 9},
            },
        ),
    ],
)
async def test_a_dataclass_that_a_tool_returns_unchanged_has_its_defaults(sent, returned):
    server, parent = Server("tools"), Server("parent")

    @server.tool
    def planned(trip: Trip, *, others: dict[str, Trip] | None = None) -> Trip:
        return others["a"] if others else trip

    parent.mount("p", server, tools={"planned": {"arguments": {"trip": {"name": "plan"}}}})
    whole = {"days": 1, "note": "NONE", "stops": [], "span": None} | returned

    assert (await call(server, "planned", trip=sent)).structured == whole
    assert (await call(server, "planned", trip=sent, others={"a": sent})).structured == whole
    assert (await call(parent, "p_planned", plan=sent)).structured == whole


async def test_a_list_within_a_set_is_an_invalid_argument(server):
    @server.tool
    async def count(tags: set[Any]) -> int:
        return len(tags)

    assert (await call(server, "count", tags=[1, 1])).text == "1"
    refused = await call(server, "count", tags=[[1]])

    assert refused.is_error
    assert refused.text == "a set has a list or an object in it, but must have plain values only"


# Definition


async def test_a_tool_is_described_by_its_function(server: Server):
    @server.tool
    def search(query: str, limit: Annotated[int, Meta(ge=1, le=50)] = 10) -> list[Hit]:
        """Search the notes.

        Args:
            query: What to look for.
        """

    async with Client.memory(server) as client:
        (tool,) = await client.list_tools()

    assert tool.name == "search"
    assert tool.description == "Search the notes."
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert tool.output_schema is not None
    assert tool.output_schema["type"] == "array"
    assert callable(search)


async def test_options_of_the_decorator_override_the_function(server: Server):
    @server.tool(
        name="find",
        title="Find",
        description="Find it.",
        annotations=ToolAnnotations(read_only_hint=True),
        meta={"example.com/a": 1},
    )
    def search(query: str) -> str:
        """Search the notes."""

    async with Client.memory(server) as client:
        (tool,) = await client.list_tools()

    assert (tool.name, tool.title, tool.description) == ("find", "Find", "Find it.")
    assert tool.annotations == ToolAnnotations(read_only_hint=True)
    assert tool.meta == {"example.com/a": 1}


async def test_explicit_schemas_are_listed_unchanged(server: Server):
    given = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"side": {"enum": ["left", "right"]}},
        "properties": {"to": {"$ref": "#/$defs/side"}},
        "if": {"required": ["to"]},
        "x-ours": True,
    }
    output = {"type": "object", "properties": {"at": {"type": "string"}}, "x-theirs": []}

    @server.tool(input_schema=given, output_schema=output)
    async def turn(context: Context, to: str = "left") -> dict[str, str]:
        return {"at": to}

    async with Client.memory(server) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool("turn", {"to": "right"})
        wrong = await client.call_tool("turn", {"to": CANARY})

    assert tool.input_schema == given
    assert tool.output_schema == output
    assert result.structured == {"at": "right"}
    assert wrong.is_error
    assert wrong.text == 'to: the value is not one of "left", "right"' or "to:" in wrong.text
    assert CANARY not in wrong.text


# Arguments


async def test_an_invalid_argument_is_reported_to_the_model_and_the_function_does_not_run(
    server: Server,
):
    ran = []

    @server.tool
    def search(query: str, limit: int = 10) -> str:
        ran.append(query)
        return ""

    result = await call(server, "search", query="a", limit=CANARY)

    assert result.is_error
    assert result.text == "limit: expected `int`, got `str`"
    assert ran == []


async def test_missing_and_unknown_arguments_are_named(server: Server):
    @server.tool
    def search(query: str) -> str:
        return ""

    assert (await call(server, "search")).text == "missing required argument 'query'"
    assert (await call(server, "search", query="", q=CANARY)).text == "unknown argument 'q'"


async def test_an_unknown_tool_is_a_protocol_error(server: Server):
    server.tool(name="one")(lambda: "")

    with pytest.raises(RemoteError) as raised:
        await call(server, "other")

    assert raised.value.code == -32602
    assert "unknown tool 'other'" in raised.value.message


async def test_arguments_of_a_wrong_shape_are_refused(server, connect, meta):
    server.tool(name="one")(lambda: "fine")
    wire = await connect(server)

    for arguments in ([1], "a", 1):
        answer = await wire.modern("tools/call", {"name": "one", "arguments": arguments})
        assert answer["result"]["isError"], answer
    for params in ({}, {"name": 1}, {"name": None}):
        answer = await wire.modern("tools/call", params)
        assert answer["error"]["code"] == -32602, answer
    assert (await wire.modern("tools/call", {"name": "one"}))["result"]["content"]


# Limits


async def test_an_async_tool_is_cancelled_at_its_timeout(server: Server):
    ended = asyncio.Event()

    @server.tool(timeout=0.02)
    async def sleep() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    result = await call(server, "sleep")

    assert result.is_error
    assert result.text == "sleep did not end within 0.02 s"
    assert ended.is_set()


async def test_a_plain_tool_is_abandoned_at_its_timeout(server: Server):
    release = threading.Event()

    @server.tool(timeout=0.02)
    def sleep() -> str:
        release.wait()
        return ""

    result = await call(server, "sleep")
    release.set()

    assert result.text == "sleep did not end within 0.02 s"


async def test_calls_at_once_are_limited_by_concurrency(server: Server):
    running = most = 0
    full, release = asyncio.Event(), asyncio.Event()

    @server.tool(concurrency=2)
    async def work() -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            full.set()
        await release.wait()
        running -= 1
        return ""

    @server.tool
    async def let_go() -> str:
        release.set()
        return ""

    async with Client.memory(server) as client:
        calls = [asyncio.create_task(client.call_tool("work")) for _ in range(5)]
        await full.wait()
        await client.call_tool("let_go")
        await asyncio.gather(*calls)

    assert most == 2


async def test_cancelling_an_async_function_frees_its_slot(server: Server):
    begun, ended = asyncio.Event(), asyncio.Event()

    @server.tool(concurrency=1)
    async def wait(long: bool) -> str:
        if long:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return "next"

    async with Client.memory(server) as client:
        first = asyncio.create_task(client.call_tool("wait", {"long": True}))
        await begun.wait()
        first.cancel()
        await ended.wait()
        assert (await client.call_tool("wait", {"long": False})).text == "next"


async def test_blocking_plain_functions_do_not_block_the_loop(server: Server):
    release = threading.Event()

    @server.tool
    def block() -> str:
        release.wait()
        return "late"

    @server.tool
    async def quick() -> str:
        return "quick"

    async with Client.memory(server) as client:
        blocked = [asyncio.create_task(client.call_tool("block")) for _ in range(8)]
        for _ in range(100):
            assert (await client.call_tool("quick")).text == "quick"
        assert not any(each.done() for each in blocked)
        release.set()
        assert {(await each).text for each in blocked} == {"late"}


async def test_the_log_of_a_failure_has_no_arguments(server: Server, caplog):
    caplog.set_level(logging.DEBUG, "interlock")

    @server.tool
    async def fail(password: str) -> str:
        raise RuntimeError("no")

    await call(server, "fail", password=CANARY)

    assert CANARY not in caplog.text


# What JSON or UTF-8 cannot express

FILE = os.fsdecode(b"caf\xe9.txt")  # a name that is not UTF-8, as Linux allows


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_lone_surrogates_in_a_result_are_replaced(server: Server, revision):
    @server.tool
    async def text() -> str:
        return FILE

    @server.tool
    async def fail() -> str:
        raise ToolError(f"no such file: {FILE}")

    @server.tool
    async def listed() -> list[Hit]:
        return [Hit("a.txt", 1.0), Hit(FILE, 2.0)]

    @server.tool
    async def anything() -> Any:
        return {FILE: [FILE, None]}

    async with Client.memory(server, revision=revision) as client:
        assert (await client.call_tool("text")).text == "caf\ufffd.txt"
        failed = await client.call_tool("fail")
        assert (failed.is_error, failed.text) == (True, "no such file: caf\ufffd.txt")
        names = (await client.call_tool("listed")).text
        assert [each["name"] for each in json.loads(names)] == ["a.txt", "caf\ufffd.txt"]
        whole = (await client.call_tool("anything")).text
        assert json.loads(whole) == {"caf\ufffd.txt": ["caf\ufffd.txt", None]}


async def test_lone_surrogates_in_resources_prompts_logs_and_progress_are_replaced(server: Server):
    @server.resource("file://odd")
    async def odd(context: Context) -> str:
        context.log("warning", {"file": FILE})
        context.progress(1, message=FILE)
        return FILE

    @server.prompt
    async def greet() -> str:
        return FILE

    messages = []
    async with Client.memory(server, revision="2025-11-25", on_log=messages.append) as client:
        contents = (await client.read_resource("file://odd")).contents
        prompt = await client.get_prompt("greet")

    assert contents[0].text == "caf\ufffd.txt"
    assert prompt.messages[0].content == TextContent(text="caf\ufffd.txt")
    assert [each.data for each in messages] == [{"file": "caf\ufffd.txt"}]


NAN, INFINITY = float("nan"), float("inf")


@each_row(
    ("hint", "value", "place"),
    [
        (float, NAN, "the result itself"),
        (list[float], [1.0, -INFINITY], "[1]"),
        (Hit, Hit("a", NAN), "score"),
        (dict[str, list[Hit]], {"hits": [Hit("a", 1.0), Hit("b", INFINITY)]}, "hits[1].score"),
        (Any, {"a": {1: NAN}}, "a[1]"),
        (Any, CallToolResult(structured_content={"a": NAN}), "a"),
        (float, CallToolResult(structured_content=NAN), "the result itself"),
    ],
)
async def test_a_number_that_json_cannot_express_is_an_error_that_names_its_place(
    caplog, hint, value, place
):
    server = Server("tools")

    async def measure():
        return value

    measure.__annotations__ = {"return": hint}
    server.tool(measure)

    result = await call(server, "measure")

    assert result.is_error
    assert result.text == (
        f"the result has a number that JSON cannot express, NaN or infinity, at {place}; "
        "the tool must return null or a string there"
    )
    assert not caplog.records


async def test_null_beside_finite_numbers_is_not_an_error(server: Server):
    @server.tool
    async def measure() -> list[float | None]:
        return [1.5, None]

    assert (await call(server, "measure")).text == "[1.5,null]"


# Refusals of a client


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (-1, "the user declined sampling/createMessage: not now (-1)"),
        (-32603, "the client refused sampling/createMessage: not now (-32603)"),
    ],
)
async def test_a_refused_question_fails_the_tool_without_a_traceback(
    server: Server, caplog, code, says
):
    caught = []

    @server.tool
    async def ask(context: Context, catches: bool) -> str:
        try:
            return str(await context.sample("hello", 10))
        except ClientRefused as error:
            caught.append((error.code, error.message))
            if catches:
                return "then not"
            raise

    async def refuse(_: Any) -> Any:
        raise RemoteError(code, "not now")

    caplog.set_level(logging.DEBUG, "interlock.server")
    async with Client.memory(server, revision="2025-11-25", sampling=refuse) as client:
        result = await client.call_tool("ask", {"catches": False})
        assert (result.is_error, result.text) == (True, says)
        assert (await client.call_tool("ask", {"catches": True})).text == "then not"

    assert caught == [(code, "not now")] * 2
    assert not [each for each in caplog.records if each.name == "interlock.server"]


@pytest.mark.parametrize("error", [InvalidArguments("a: wrong"), RequestTimeout("too late")])
async def test_invalid_arguments_and_timeouts_are_reported_to_the_model(server: Server, error):
    @server.tool
    async def fail() -> str:
        raise error

    assert (await call(server, "fail")).text == str(error)


async def test_an_async_function_behind_a_plain_decorator_is_awaited(server: Server):
    def decorated(function):
        @functools.wraps(function)
        def wrapper(*args, **named):
            return function(*args, **named)

        return wrapper

    @server.tool
    @decorated
    async def add(a: int, b: int = 2) -> str:
        await asyncio.sleep(0)
        return str(a + b)

    assert (await call(server, "add", a=1)).text == "3"


@pytest.mark.slow("works through much data")
async def test_a_result_over_the_frame_limit_closes_a_memory_connection(
    server: Server,
):
    @server.tool
    async def big(size: int) -> str:
        return "x" * size

    async with Client.memory(server) as client:
        assert len((await client.call_tool("big", {"size": 15_000_000})).text) == 15_000_000
        with pytest.raises(MessageTooLarge, match=r"message of 16\.2 MiB \(limit 16 MiB\)"):
            await client.call_tool("big", {"size": 17_000_000})
    assert (await call(server, "big", size=1)).text == "x"
