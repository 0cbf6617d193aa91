"""Spans of a program: their tree, their links, and what they leave in the caller's context."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import re
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from interlock import Agent, Client, Context, Server, Toolbox, observing
from interlock.agent import ToolFinished
from interlock.calls import Call, CallHandler, Outcome
from interlock.config import StdioServer
from interlock.config.gateway import PolicyRules, Rule
from interlock.errors import InterlockError, RequestTimeout
from interlock.gateway.forwarding.server import ForwardingServer
from interlock.layers import Layers
from interlock.layers.asking import asking as asking_user
from interlock.messages import AssistantMessage, ToolCall, Usage, UserMessage
from interlock.models import ScriptedModel
from interlock.observing import TraceContext
from interlock.policy import Policy
from interlock.protocol.envelope import encode
from interlock.telemetry import names
from interlock.telemetry.span import CLIENT, INTERNAL, SERVER, TraceSpan, current
from interlock.telemetry.tracer import Tracer
from interlock.types import ElicitParams, ElicitResult
from tests.cli.conftest import ECHO
from tests.servers.evil_http import MODERN, EvilHttp
from tests.support.recorded_spans import named, recorded_spans, tree
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool

server = Server("demo")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def relay() -> str:
    """Add two numbers by another client."""
    async with Client.memory(server) as client:
        return (await client.call_tool("add", {"a": 1, "b": 2})).text


@server.prompt
async def greet() -> str:
    """Greet."""
    return "Hello."


@server.tool
async def forget(context: Context) -> str:
    """Ask twice."""
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    await context.elicit("first", form)
    await context.elicit("second", form)
    return "done"


@pytest.fixture
def spans() -> Iterator[list[TraceSpan]]:
    """Record every span of the test."""
    with recorded_spans() as found:
        yield found


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
        agent = Agent(asks_for_a_sum(), tools, conversation=lambda: "canary")
        events = [each async for each in agent.stream([UserMessage("canary")])]

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
    # The cards of the calls show the ids that the spans contain.
    cards = {each.id: each.call_id for each in events if isinstance(each, ToolFinished)}
    called = [each for each in spans if each.name == "execute_tool add"]
    shown = ((each.attributes[name] for name in (names.TOOL_CALL, names.CALL)) for each in called)
    assert cards == dict(shown)
    answered = named(spans, "invoke_agent interlock").attributes[names.CONVERSATION]
    assert re.fullmatch("[0-9a-f]{16}", str(answered))
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
    # A legacy server answers one request for all rounds, below the first.
    sent = [each for each in spans[before:] if each.name == "tools/call forget"]
    expected = rounds[:1] if is_parked else rounds
    assert [each.parent for each in sent if each.kind == CLIENT] == [each.id for each in expected]
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


async def test_a_call_that_asks_before_it_is_sent_stays_below_its_first_round(
    spans: list[TraceSpan],
):
    def ask_first(handle: CallHandler) -> CallHandler:
        async def ask(call: Call) -> Outcome:
            assert call.back is not None
            form = ElicitParams("?", requested_schema={"type": "object", "properties": {}})
            await call.back.ask("elicitation/create", encode(form), timeout=60.0)
            return await handle(call)

        return ask

    upstream: Any = asking()
    upstream.answers["tools/call"] = text("done")
    gateway = ForwardingServer(
        {"s": upstream}, Policy.compile(None), environ={}, layers=Layers(around=[ask_first])
    )
    async with Client.memory(gateway, revision=MODERN, elicitation=anna) as client:
        assert (await client.call_tool("s__forget")).text == "done"

    rounds = [each for each in spans if (each.kind, each.name) == (SERVER, "tools/call s__forget")]
    (sent,) = (each for each in spans if (each.kind, each.name) == (CLIENT, "tools/call forget"))
    assert len(rounds) == 2
    assert sent.parent == rounds[0].id
    assert sent.attributes[names.CALL] == rounds[0].attributes[names.CALL]


async def test_a_span_notes_how_long_it_waits_for_an_approval(spans: list[TraceSpan]):
    async def allow(*_: object) -> bool:
        return True

    rule = Rule(id="all", effect="ask", who=("*",), kind="tools", patterns=("*:*",))
    policy = Policy.compile(PolicyRules(rules=(rule,)))
    around = Layers(policy=policy, approval=asking_user(allow))
    async with Toolbox({"d": server}, around=around) as tools:
        await tools.call("d:add", {"a": 1, "b": 2})

    (event,) = named(spans, "execute_tool add").events
    assert (event.name, event.attributes[names.REASON]) == (names.WAITING, "approval")
    assert isinstance(event.attributes[names.WAITED], int)


async def test_spans_of_a_call_without_an_answer_have_the_error_timeout(spans: list[TraceSpan]):
    silent = Server("silent")

    @silent.tool
    async def hang() -> None:
        """Never answer."""
        await asyncio.Event().wait()

    async with Toolbox({"d": silent}) as tools:
        with pytest.raises(RequestTimeout):
            await tools.call("d:hang", timeout=0.001)

    assert {(each.name, each.error) for each in spans if each.kind != SERVER and each.error} == {
        ("execute_tool hang", "timeout"),
        ("tools/call hang", "timeout"),
    }


async def test_a_handshake_has_a_span_only_within_another_span(spans: list[TraceSpan]):
    async with Client.memory(server) as client:
        assert not [each for each in spans if each.kind == CLIENT]
        await client.call_tool("relay", {})

    handshake = next(each for each in spans if each.kind == CLIENT)
    assert handshake.name == "server/discover"
    assert handshake.attributes[names.REQUEST_ID] == "1"
    relay = next(each for each in spans if (each.kind, each.name) == (SERVER, "tools/call relay"))
    assert handshake.parent == relay.id


def place_of(task: asyncio.Task[Any]) -> str:
    """Return the name of the folder with the code of a task."""
    work: Any = task.get_coro()
    return Path(work.cr_code.co_filename).parent.name


async def test_no_task_that_outlives_a_request_belongs_to_its_trace():
    contexts: dict[asyncio.Task[Any], contextvars.Context] = {}

    def make(
        loop: asyncio.AbstractEventLoop,
        work: Any,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        context = contextvars.copy_context() if context is None else context
        task = asyncio.Task(work, loop=loop, context=context, **options)
        contexts[task] = context
        return task

    shows = Server("shows")
    shows.resource("show://x", name="x")(lambda: "x")
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        tools = Toolbox({"e": StdioServer(command=sys.executable, args=ECHO)})
        client = Client.memory(shows, on_resource_updated=print)

        async def request() -> None:
            current.set(TraceSpan("4b" * 16, "", "", True, SERVER, "tools/call"))
            await stack.enter_async_context(tools)
            await tools.call("e:say", {"text": "x"})
            await stack.enter_async_context(client)
            await client.subscribe("show://x")
            tools.upstream("e").start_again()

        loop.set_task_factory(make)
        await asyncio.create_task(request())
        left = [each for each in contexts if not each.done()]
        owned = {place_of(each) for each in left if contexts[each].get(current) is not None}
        loop.set_task_factory(None)

    assert len(left) >= 3
    assert owned <= {"server"}  # the server in this process belongs to its program


async def test_only_names_that_exist_for_the_caller_name_a_span(spans: list[TraceSpan]):
    gateway = ForwardingServer({"s": server}, Policy.compile(None), environ={})
    for served, prefix in ((server, ""), (gateway, "s__")):
        async with Client.memory(served) as client:
            await client.get_prompt(f"{prefix}greet")
            for number in range(150):
                for ask in (
                    client.call_tool(f"canary{number}"),
                    client.get_prompt(f"canary{number}"),
                    client.read_resource(f"canary:{number}"),
                    client.request(f"canary/{number}"),
                ):
                    with pytest.raises(InterlockError):
                        await ask

    assert {each.name for each in spans if each.kind == SERVER} == {
        *("server/discover", "tools/list", "prompts/list", "tools/call", "resources/read"),
        *("prompts/get", "prompts/get greet", "prompts/get s__greet", "_OTHER"),
    }
    assert "canary" not in repr([each.attributes for each in spans if each.kind == SERVER])


@pytest.mark.slow("makes 10,000 calls")
async def test_many_calls_leave_no_span_and_no_task(spans: list[TraceSpan]):
    async with Client.memory(server) as client:
        for _ in range(10_000):
            await client.call_tool("add", {"a": 1, "b": 2})
        tasks = len(asyncio.all_tasks())
        assert len(spans) > 20_000
        assert all(each.end for each in spans)
        spans.clear()
        gc.collect()
        left = [each for each in gc.get_objects() if isinstance(each, TraceSpan)]

    assert tasks < 10
    assert len(left) < 10


def test_processes_that_share_a_key_hash_an_id_to_the_same_text():
    hashed = []
    for key in (b"shared", b"shared", b""):
        with recorded_spans():
            tracer = observing.observer
            assert isinstance(tracer, Tracer)
            if key:
                tracer.use_key(key)
            hashed.append(tracer._hashed("session"))

    assert hashed[0] == hashed[1] != hashed[2]


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
    assert span.attributes["jsonrpc.request.id"] == str(asked.message["id"])
    assert span.attributes["server.address"] == "127.0.0.1"
    assert str(span.attributes["server.port"]) in http.url
    assert span.attributes["gen_ai.operation.name"] == "execute_tool"
    assert "canary" not in repr(span.attributes)


async def test_a_trace_that_is_not_sampled_goes_on_at_the_server_and_stays_unsampled(
    spans: list[TraceSpan], monkeypatch: pytest.MonkeyPatch
):
    given = f"00-{'4b' * 16}-{'00f1' * 4}-00"
    monkeypatch.setattr(observing.observer, "_ambient", TraceContext(given))
    asked = Server("asked")

    @asked.tool
    async def trace(context: Context) -> str:
        """Return the trace."""
        return "" if context.trace is None else context.trace.parent

    async with Toolbox({"d": asked}) as tools:
        sent = (await tools.call("d__trace", {})).text

    assert (sent[:35], sent[-3:]) == (given[:35], "-00")
    assert {each.kind for each in spans} <= {SERVER}  # those begin traces of their own


async def test_a_server_gets_no_context_if_no_propagator_is_chosen():
    meta = {"traceparent": f"00-{'4b' * 16}-{'00f1' * 4}-01"}
    async with EvilHttp(MODERN) as http, Client.http(http.url) as client:
        with recorded_spans(propagates=False):
            await client.call_tool("echo", {"text": "x"}, meta=meta)

    (asked,) = (each for each in http.asked if each.method == "tools/call")
    assert "traceparent" not in repr(asked.message) + repr(asked.headers)


def test_every_name_of_a_convention_stands_in_one_module():
    folder = Path(names.__file__).parent
    written = re.compile(r"[\"'](?:gen_ai|mcp|jsonrpc|network|client|server|error|interlock)\.\w")

    found = {each.name for each in folder.glob("*.py") if written.search(each.read_text())}

    # Those of loggers, variables and functions are other names.
    assert found - {"names.py"} == {"__init__.py", "collector.py", "span.py"}
