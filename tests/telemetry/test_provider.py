"""Spans that a provider of OpenTelemetry makes: a program's, or that of the extra `otel`."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry import propagate, trace
from opentelemetry.propagators.b3 import B3MultiFormat
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from interlock import Agent, Client, Server, Toolbox, observing, telemetry
from interlock.errors import ConfigError, MissingExtra
from interlock.layers.exposition import by_label, family
from interlock.messages import AssistantMessage, ToolCall, UserMessage
from interlock.models import ScriptedModel
from interlock.telemetry import settings
from interlock.telemetry.running import running
from interlock.telemetry.settings import read_settings
from tests.cli.conftest import ECHO
from tests.servers.evil_http import MODERN, EvilHttp
from tests.support.otlp_collector import Collector, collecting, decoded
from tests.support.rows import each_row

server = Server("demo")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers, within a span of the program."""
    with trace.get_tracer("program", tracer_provider=PROVIDER).start_as_current_span("own"):
        return a + b


EXPORTED = InMemorySpanExporter()
PROVIDER = TracerProvider(shutdown_on_exit=False)
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTED))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Let the provider of this file make the spans."""
    monkeypatch.setattr(observing, "observer", None)
    telemetry.enable(PROVIDER)
    EXPORTED.clear()
    yield EXPORTED
    assert not trace.get_current_span().get_span_context().is_valid


def tree(spans: InMemorySpanExporter) -> set[tuple[str, str, str]]:
    """Return the kind, the name and the parent's name of each span."""
    found: dict[int, ReadableSpan] = {
        each.context.span_id: each for each in spans.get_finished_spans()
    }
    return {
        (each.kind.name, each.name, found[each.parent.span_id].name if each.parent else "")
        for each in found.values()
    }


async def test_spans_of_a_program_and_of_interlock_are_one_tree(spans: InMemorySpanExporter):
    calls = (ToolCall("c1", "d__add", {"a": 1, "b": 2}),)
    model = ScriptedModel([AssistantMessage("", calls), AssistantMessage("")], name="openai:gpt-5")
    async with Toolbox({"d": server}) as tools:
        spans.clear()
        with PROVIDER.get_tracer("program").start_as_current_span("program"):
            await Agent(model, tools).complete([UserMessage("canary")])
            assert trace.get_current_span().name == "program"  # type: ignore[attr-defined]

    assert tree(spans) == {
        ("INTERNAL", "program", ""),
        ("INTERNAL", "invoke_agent interlock", "program"),
        ("CLIENT", "chat gpt-5", "invoke_agent interlock"),
        ("INTERNAL", "execute_tool add", "invoke_agent interlock"),
        ("CLIENT", "tools/call add", "execute_tool add"),
        ("SERVER", "tools/call add", "tools/call add"),
        ("INTERNAL", "own", "tools/call add"),
    }
    assert "canary" not in repr([each.to_json() for each in spans.get_finished_spans()])


async def test_a_failed_call_has_its_error_and_an_outliving_task_begins_a_new_trace(
    spans: InMemorySpanExporter,
):
    async with Client.memory(server) as client:
        late = asyncio.Event()

        async def later() -> None:
            await late.wait()
            await client.call_tool("add", {"a": 1, "b": 2})

        with PROVIDER.get_tracer("program").start_as_current_span("program"):
            assert (await client.call_tool("add", {"a": "x"})).is_error
        await asyncio.gather(asyncio.create_task(later()), asyncio.to_thread(late.set))
        task = asyncio.create_task(later())
        late.set()
        await task

    failed = [each for each in spans.get_finished_spans() if not each.status.is_ok]
    assert {each.attributes["error.type"] for each in failed if each.attributes} == {"tool_error"}
    assert ("CLIENT", "tools/call add", "program") in tree(spans)
    assert ("CLIENT", "tools/call add", "") in tree(spans)


@pytest.fixture
def b3() -> Iterator[None]:
    """Let the propagators of the process have the format B3 only."""
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(B3MultiFormat())
    yield
    propagate.set_global_textmap(before)


async def test_contexts_have_the_formats_of_the_propagators(spans: InMemorySpanExporter, b3: None):
    async with EvilHttp(MODERN) as http, Client.http(http.url) as client:
        spans.clear()
        await client.call_tool("echo", {"text": "x"})
    (asked,) = (each for each in http.asked if each.method == "tools/call")
    (span,) = spans.get_finished_spans()
    assert span.context is not None
    for carrier in (asked.headers, asked.message["params"]["_meta"]):
        assert carrier["x-b3-traceid"] == f"{span.context.trace_id:032x}"
        assert carrier["x-b3-spanid"] == f"{span.context.span_id:016x}"
        assert "traceparent" not in carrier
    spans.clear()
    context = {"x-b3-traceid": "4b" * 16, "x-b3-spanid": "00f1" * 4, "x-b3-sampled": "1"}
    async with Client.memory(server) as client:
        await client.request("tools/list", {"_meta": context})
    (served,) = (each for each in spans.get_finished_spans() if each.name == "tools/list")
    assert served.parent is not None
    assert f"{served.parent.trace_id:032x}{served.parent.span_id:016x}" == "4b" * 16 + "00f1" * 4


def test_a_provider_that_is_there_is_used_as_it_is(spans: InMemorySpanExporter):
    with collecting() as collector:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        before = observing.observer
        with running("serve", variables, timeout=1.0):
            assert observing.observer is before
            assert observing.meter is None
    assert collector.requests == []


@contextmanager
def grpc_collecting() -> Iterator[Collector]:
    """Run a collector that takes gRPC."""

    class Traces(trace_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            collector.accept("/v1/traces", decoded("/v1/traces", request.SerializeToString()))
            return ExportTraceServiceResponse()

    class Metrics(metrics_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            collector.accept("/v1/metrics", decoded("/v1/metrics", request.SerializeToString()))
            return ExportMetricsServiceResponse()

    service = grpc.server(ThreadPoolExecutor(2))
    trace_grpc.add_TraceServiceServicer_to_server(Traces(), service)
    metrics_grpc.add_MetricsServiceServicer_to_server(Metrics(), service)
    collector = Collector(f"http://127.0.0.1:{service.add_insecure_port('127.0.0.1:0')}")
    service.start()
    try:
        yield collector
    finally:
        service.stop(None).wait()


@pytest.mark.parametrize(
    ("protocol", "run"), [("http/protobuf", collecting), ("grpc", grpc_collecting)]
)
def test_spans_and_metrics_are_exported_in_the_protocols_of_the_extra(
    protocol: str, run: Any, monkeypatch: pytest.MonkeyPatch
):
    with run() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        with running("serve", os.environ, timeout=60.0):
            asyncio.run(list_tools())
            meter: Any = observing.meter
            meter.put([family("interlock_calls_total", "Calls.", by_label("server", {"s": 2}))])
            counts = observing.span_counts

    assert "tools/call add" in collector.names
    assert {each["resource"]["service.name"] for each in collector.spans} == {"interlock-serve"}
    (metrics,) = collector.metrics.values()
    (point,) = metrics["interlock.calls"]["points"].values()
    assert point["asDouble"] == 2
    assert counts is not None
    assert counts["exported"] == len(collector.spans)


async def list_tools() -> None:
    async with Client.memory(server) as client:
        await client.call_tool("add", {"a": 1, "b": 2})


@each_row("protocol", ["http/protobuf", "grpc"])
@each_row(("is_away", "timeout"), [(True, 600.0), (False, 0.1)])
def test_a_collector_that_is_away_or_silent_ends_the_last_export(
    protocol: str, is_away: bool, timeout: float
):
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as patch:
        port = silent.getsockname()[1]
        if is_away:
            silent.close()
        # A retry of the SDK, or the timeout of a request, would outlast this test.
        patch.setattr("random.uniform", lambda *_: 100_000.0)
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2000000000")
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
        patch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        with running("serve", os.environ, timeout=timeout):
            asyncio.run(list_tools())
            meter: Any = observing.meter
            meter.put([family("interlock_calls_total", "Calls.", by_label("server", {"s": 2}))])


@each_row(
    ("variable", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_PROPAGATORS", "b3"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
    ],
)
def test_without_the_extra_one_line_says_what_to_install(variable: str, value: str):
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4317", variable: value}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "find_spec", lambda _: None)
        with pytest.raises(MissingExtra, match=f"{variable} '{value}' needs the extra otel: "):
            read_settings(variables, "serve")


def test_enable_without_the_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "interlock.telemetry.provider", raising=False)
    monkeypatch.delattr("interlock.telemetry.provider", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingExtra, match=r"interlock.telemetry.enable needs the extra otel: "):
        telemetry.enable()


def test_a_sampler_or_propagator_that_no_package_has_is_an_error():
    for variable in ("OTEL_TRACES_SAMPLER", "OTEL_PROPAGATORS"):
        with pytest.raises(ConfigError, match=f"{variable} 'made_up' is unknown; use "):
            read_settings({"OTEL_TRACES_EXPORTER": "otlp", variable: "made_up"}, "serve")
    found = read_settings({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_PROPAGATORS": "b3"}, "serve")
    assert found.tracing is not None
    assert found.tracing.needs_sdk


@pytest.mark.slow("starts a program")
@each_row("is_instrumented", [True, False])
def test_a_command_of_opentelemetry_instrument_makes_one_tree_and_a_plain_one_imports_nothing(
    is_instrumented: bool, tmp_path: Path
):
    entry = {"command": sys.executable, "args": ECHO}
    (tmp_path / "mcp.json").write_text(f'{{"mcpServers": {{"e": {entry!r}}}}}'.replace("'", '"'))
    scripts = Path(sys.executable).parent
    call = ["call", "--config", "mcp.json", "e:say", "text=canary"]
    with collecting() as collector:
        environ = {**os.environ, "HOME": str(tmp_path)}
        if is_instrumented:
            environ |= {
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_METRICS_EXPORTER": "none",
                "OTEL_LOGS_EXPORTER": "none",
                "OTEL_SERVICE_NAME": "ci",
            }
            command = [scripts / "opentelemetry-instrument", "--", scripts / "interlock", *call]
        else:
            code = "import sys; from interlock.cli import interlock as run\n"
            code += f"run({call!r}, standalone_mode=False)\n"
            code += "sys.exit(repr([n for n in sys.modules if 'opentelemetry' in n][:3]))"
            command = [sys.executable, "-c", code]
        ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)

    if not is_instrumented:
        assert ran.stderr.strip() == "[]"
        return
    assert (ran.returncode, ran.stderr) == (0, "")
    (called,) = (each for each in collector.spans if each["name"] == "execute_tool say")
    (sent,) = (each for each in collector.spans if each["name"] == "tools/call say")
    assert sent["parentSpanId"] == called["spanId"]
    assert {each["resource"]["service.name"] for each in collector.spans} == {"ci"}
    assert {each["content-type"] for each in collector.requests} == {"application/x-protobuf"}
    assert "canary" not in repr(collector.spans)
