"""Spans of a program: their tree, their links, and what they leave in the caller's context."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from interlock import Agent, Client, Context, Server, Toolbox, observing
from interlock.errors import RemoteError
from interlock.gateway.forwarding.server import ForwardingServer
from interlock.messages import AssistantMessage, ToolCall, Usage, UserMessage
from interlock.models import ScriptedModel
from interlock.policy import Policy
from interlock.telemetry import names
from interlock.telemetry.sampling import sampler
from interlock.telemetry.settings import Export, TracingSettings
from interlock.telemetry.span import CLIENT, INTERNAL, SERVER, TraceSpan, current
from interlock.telemetry.tracer import Tracer
from interlock.types import ElicitParams, ElicitResult
from tests.servers.evil_http import MODERN, EvilHttp
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool

server = Server("demo")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def forget(context: Context) -> str:
    """Ask twice."""
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    await context.elicit("first", form)
    await context.elicit("second", form)
    return "done"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TraceSpan]]:
    """Record every span of the test."""
    found: list[TraceSpan] = []
    settings = TracingSettings(Export("http://x"), sampler("", ""), max_text=40)
    monkeypatch.setattr(observing, "observer", Tracer(settings, found.append))
    yield found
    assert current.get() is None


def tree(spans: list[TraceSpan]) -> set[tuple[int, str, str]]:
    """Return the kind, the name and the parent's name of each span."""
    by_id = {each.id: each.name for each in spans}
    return {(each.kind, each.name, by_id.get(each.parent, "")) for each in spans}


async def anna(_: ElicitParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "anna"})


def asks_for_a_sum() -> ScriptedModel:
    calls = tuple(ToolCall(f"c{n}", "d__add", {"a": n, "b": 2}) for n in (1, 2))
    return ScriptedModel(
        [AssistantMessage("", calls), AssistantMessage("canary", usage=Usage(7, 3))],
        name="openai:gpt-5@https://canary.example/v1",
    )


async def test_an_answer_covers_its_models_and_calls(spans: list[TraceSpan]):
    async with Toolbox({"d": server}) as tools:
        spans.clear()
        await Agent(asks_for_a_sum(), tools).complete([UserMessage("canary")])

    assert tree(spans) == {
        (INTERNAL, "invoke_agent interlock", ""),
        (CLIENT, "chat gpt-5", "invoke_agent interlock"),
        (INTERNAL, "execute_tool add", "invoke_agent interlock"),
        (CLIENT, "tools/call add", "execute_tool add"),
        (SERVER, "tools/call add", "tools/call add"),
    }
    assert len({each.trace for each in spans}) == 1
    model = next(each for each in reversed(spans) if each.name == "chat gpt-5")
    assert model.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5",
        "gen_ai.response.finish_reasons": ("end",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 3,
        "server.address": "canary.example",
        "server.port": 443,
    }
    counted = [each for each in spans if each.attributes.get("gen_ai.operation.name")]
    assert sum(each.attributes["gen_ai.operation.name"] == "execute_tool" for each in counted) == 2
    assert all(len(str(value)) <= 40 for each in spans for value in each.attributes.values())


async def test_the_reader_of_an_answer_is_never_within_its_span(spans: list[TraceSpan]):
    async with Toolbox({"d": server}) as tools:
        one = Agent(asks_for_a_sum(), tools).stream([UserMessage("x")])
        other = Agent(asks_for_a_sum(), tools).stream([UserMessage("x")])
        async with aclosing(one), aclosing(other):
            await anext(one)
            assert current.get() is None
            await anext(other)
            assert current.get() is None
            async for _ in other:
                assert current.get() is None

    answers = [each for each in spans if each.name == "invoke_agent interlock"]
    assert len({each.trace for each in answers}) == 2
    assert [each.error for each in answers] == ["", ""]  # one was stopped, which is no error


@each_row("is_parked", [True, False])
async def test_each_round_of_questions_has_a_span_that_is_linked_to_the_first(
    spans: list[TraceSpan], is_parked: bool
):
    upstream: Any = asking() if is_parked else server
    gateway = ForwardingServer({"s": upstream}, Policy.compile(None), environ={})
    before = len(spans)
    async with Client.memory(gateway, revision="2026-07-28", elicitation=anna) as client:
        assert (await client.call_tool("s__forget")).text == "done"

    rounds = [
        each for each in spans[before:] if each.kind == SERVER and each.name.endswith("s__forget")
    ]
    assert len(rounds) == 3
    # The first link is to the client's span, because the gateway does not trust the client.
    assert [len(each.links) for each in rounds] == [1, 2, 2]
    assert all(each.links[1].parent[36:52] in {one.id for one in rounds} for each in rounds[1:])
    assert all("interlock.call.id" in each.attributes for each in rounds)


def asking() -> ScriptedServer:
    """Return a legacy server whose tool asks two questions during one call."""
    server = ScriptedServer(LEGACY, {"tools/list": {"tools": [tool("forget")]}})

    async def call(_: Json) -> Json:
        for _ in range(2):
            form = {"type": "object", "properties": {}}
            await server.ask("elicitation/create", {"message": "?", "requestedSchema": form})
        return text("done")

    server.answers["tools/call"] = call
    return server


async def test_many_calls_leave_no_span_and_no_task(spans: list[TraceSpan]):
    async with Client.memory(server) as client:
        for _ in range(300):
            await client.call_tool("add", {"a": 1, "b": 2})
        with pytest.raises(RemoteError):
            await client.request("canary/method")
        tasks = len(asyncio.all_tasks())
        assert all(each.end for each in spans)
        assert spans[-1].name == "_OTHER"
        spans.clear()
        gc.collect()
        left = [each for each in gc.get_objects() if isinstance(each, TraceSpan)]

    assert tasks < 10
    assert len(left) < 10


@each_row("revision", [LEGACY, MODERN])
async def test_a_server_over_http_gets_the_span_in_meta_and_in_headers(
    spans: list[TraceSpan], revision: str
):
    async with EvilHttp(revision) as http, Client.http(http.url) as client:
        before = len(spans)
        await client.call_tool("echo", {"text": "canary"})

    (span,) = spans[before:]
    (asked,) = (each for each in http.asked if each.method == "tools/call")
    assert asked.headers["traceparent"] == f"00-{span.trace}-{span.id}-01"
    assert asked.message["params"]["_meta"]["traceparent"] == asked.headers["traceparent"]
    assert span.attributes["server.address"] == "127.0.0.1"
    assert str(span.attributes["server.port"]) in http.url
    assert span.attributes["gen_ai.operation.name"] == "execute_tool"
    assert "canary" not in repr(span.attributes)


def test_every_name_of_a_convention_stands_in_one_module():
    folder = Path(names.__file__).parent
    written = re.compile(r"[\"'](?:gen_ai|mcp|jsonrpc|network|client|server|error|interlock)\.\w")

    found = {each.name for each in folder.glob("*.py") if written.search(each.read_text())}

    # Those of loggers, variables and functions are other names.
    assert found - {"names.py"} == {"__init__.py", "collector.py", "span.py"}
