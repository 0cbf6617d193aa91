"""Traces of the real programs, as a collector gets them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from interlock import Client
from interlock.errors import RemoteError
from interlock.toolbox.names import wire_name
from tests.cli.conftest import ECHO
from tests.support.otlp_collector import Collector, Json, collecting

Start = Callable[..., subprocess.Popen[str]]
CANARIES = ("canary-argument", "canary-result", "canary-prompt", "canary-answer", "canary-header")
TOOLS = """
from interlock import Server
from interlock.errors import ToolError

server = Server("tools")

@server.tool
async def add(a: int, b: int, note: str = "") -> str:
    "Add two numbers."
    return f"canary-result {a + b}"

@server.tool
async def fail() -> str:
    "Fail."
    raise ToolError("canary-result")
"""

pytestmark = pytest.mark.slow("starts a gateway for each case")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


class Traced:
    """A gateway with telemetry on, a traced server on stdio behind it, and the echo server."""

    def __init__(self, program: Start, folder: Path, collector: Collector) -> None:
        self.variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=canary-header",
        }
        (folder / "tools.py").write_text(TOOLS)
        run = ["-m", "interlock", "run", str(folder / "tools.py")]
        servers = {
            "t": {"command": sys.executable, "args": run, "env": self.variables},
            "e": {"command": sys.executable, "args": ECHO},
        }
        policy = {
            "rules": [
                {"id": "most", "effect": "allow", "who": ["*"], "tools": ["*:*"]},
                {"id": "never", "effect": "deny", "who": ["*"], "tools": ["e:picture"]},
            ]
        }
        file = folder / "gateway.json"
        file.write_text(json.dumps({"mcpServers": servers, "gateway": {"policy": policy}}))
        self._program = program(
            *("serve", "--config", file, "--http", "127.0.0.1:0"),
            env={**os.environ, **self.variables},
        )
        assert self._program.stderr is not None
        lines = []
        for line in self._program.stderr:
            lines.append(line)
            if line.startswith(("VS Code", "error")):
                break
        self.url = re.findall(r"^serving at (\S+)$", "".join(lines), re.M)[0]
        (file,) = map(Path, re.findall("^key for this run: in (.+)$", "".join(lines), re.M))
        self.key = file.read_text().strip()

    @property
    def entry(self) -> Json:
        return {"url": self.url, "headers": {"Authorization": f"Bearer {self.key}"}}

    def end(self) -> str:
        """End the gateway; return what it has written since it was ready."""
        self._program.send_signal(signal.SIGTERM)
        _, errors = self._program.communicate()
        assert self._program.returncode == 0
        return errors


@pytest.fixture
def traced(program: Start, tmp_path: Path, home: Path, collector: Collector) -> Traced:
    assert home
    return Traced(program, tmp_path, collector)


def path_of(collector: Collector, span: Json) -> list[str]:
    """Return the services and names of a span and of those around it, the root first."""
    by_id = {each["spanId"]: each for each in collector.spans}
    path = [f"{span['resource']['service.name']}: {span['name']}"]
    while parent := span.get("parentSpanId"):
        span = by_id[parent]
        path.insert(0, f"{span['resource']['service.name']}: {span['name']}")
    return path


def of_service(collector: Collector, service: str, name: str) -> Json:
    (found,) = (
        each
        for each in collector.spans
        if (each["resource"]["service.name"], each["name"]) == (f"interlock-{service}", name)
    )
    return found


def test_one_tree_from_a_chat_through_a_gateway_to_a_server_on_stdio(
    traced: Traced, collector: Collector, program: Start, home: Path, interlock
):
    arguments = {"a": 1, "b": 2, "note": "canary-argument"}
    calls = [{"id": "1", "name": wire_name("g", "t__add"), "input": arguments}]
    script = home / "script.json"
    script.write_text(json.dumps([{"tool_calls": calls}, {"content": "canary-answer"}]))
    file = home / "chat.json"
    file.write_text(json.dumps({"mcpServers": {"g": traced.entry}}))
    chat = program(
        *("chat", "--config", file, "--model", f"scripted:{script}", "--yes", "canary-prompt"),
        env={**os.environ, **traced.variables, "INTERLOCK_LOG": str(home / "log")},
    )
    answer, errors = chat.communicate()
    assert chat.returncode == 0, errors
    assert "canary-answer" in answer
    errors = traced.end()

    assert path_of(collector, of_service(collector, "run", "tools/call add")) == [
        "interlock-chat: invoke_agent interlock",
        "interlock-chat: execute_tool t__add",
        "interlock-chat: tools/call t__add",
        "interlock-serve: tools/call t__add",
        "interlock-serve: tools/call add",
        "interlock-run: tools/call add",
    ]
    models = [each for each in collector.spans if each["name"] == "chat script.json"]
    assert [each["parentSpanId"] for each in models] == 2 * [
        collector.named("invoke_agent interlock")["spanId"]
    ]
    # A call counts once in each process.
    counted = [
        f"{each['resource']['service.name']}: {each['name']}"
        for each in collector.spans
        if each["attributes"].get("gen_ai.operation.name") == "execute_tool"
    ]
    assert sorted(counted) == [
        "interlock-chat: execute_tool t__add",
        "interlock-run: tools/call add",
        "interlock-serve: tools/call t__add",
    ]
    # The call's id in the gateway is in its spans and in the audit record, which names the trace.
    served = of_service(collector, "serve", "tools/call t__add")
    sent = of_service(collector, "serve", "tools/call add")
    id = served["attributes"]["interlock.call.id"]
    assert sent["attributes"]["interlock.call.id"] == id
    exported = interlock("audit", "export")
    intent = next(
        each
        for each in map(json.loads, exported.out.splitlines())
        if each["kind"] == "intent" and id in each.values()
    )
    assert intent["traceparent"] == f"00-{served['traceId']}-{served['spanId']}-01"
    assert "clientTraceparent" not in intent
    assert {each["kind"] for each in (served, sent)} == {2, 3}
    assert (
        served["attributes"].items()
        >= {
            "mcp.method.name": "tools/call",
            "gen_ai.tool.name": "t__add",
            "interlock.server": "t",
            "interlock.rule": "most",
            "interlock.risk": "write",
            "network.transport": "tcp",
            "client.address": "127.0.0.1",
        }.items()
    )
    shown = repr(collector.spans) + errors + (home / "log").read_text()
    assert [each for each in (*CANARIES, traced.key) if each in shown] == []
    assert collector.requests[-1]["x-key"] == "canary-header"


async def test_spans_state_how_requests_failed_and_made_up_names_name_none(
    traced: Traced, collector: Collector
):
    for revision in ("2025-11-25", "2026-07-28"):
        async with Client.http(**traced.entry, revision=revision) as client:
            for name, arguments in (
                ("t__fail", {}),
                ("t__add", {"a": "canary-argument", "b": 1}),
                ("e__picture", {}),
                ("canary-made-up", {}),
            ):
                with suppress(RemoteError):
                    await client.call_tool(name, arguments)
            with suppress(RemoteError):
                await client.request("canary/method")
            with suppress(RemoteError):
                await client.read_resource("file:///canary-uri")
            with suppress(RemoteError):
                await client.get_prompt("canary-prompt")
    traced.end()

    served = [
        each
        for each in collector.spans
        if each["kind"] == 2 and each["resource"]["service.name"] == "interlock-serve"
    ]
    failed = {
        (each["name"], each["attributes"].get("error.type"), each["status"]["code"])
        for each in served
        if "status" in each
    }
    assert failed == {
        ("tools/call t__fail", "tool_error", 2),
        ("tools/call t__add", "arguments_invalid", 2),
        ("tools/call", "unknown_tool", 2),
        ("_OTHER", "-32601", 2),
        ("resources/read", "-32002", 2),
        ("resources/read", "-32602", 2),
        ("prompts/get", "arguments_invalid", 2),
    }
    assert "canary" not in repr(collector.spans)


def test_a_command_continues_the_trace_of_the_program_that_started_it(
    servers, interlock, collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    code = (
        "import os, sys; sys.exit(f'has {[each for each in os.environ if each[:4] == \"OTEL\"]}')"
    )
    servers(env={"command": sys.executable, "args": ["-c", code]})
    parent = f"00-{'4b' * 16}-{'00f1' * 4}-01"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=canary-header")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ci")
    monkeypatch.setenv("TRACEPARENT", parent)

    ran = interlock("call", "e:say", "text=canary-argument")

    assert ran.code == 0, ran.err
    called = collector.named("execute_tool say")
    assert (called["traceId"], called["parentSpanId"]) == (parent[3:35], parent[36:52])
    assert called["resource"]["service.name"] == "ci"
    assert collector.named("tools/call say")["parentSpanId"] == called["spanId"]
    assert "canary" not in repr(collector.spans)
    failed = interlock("call", "env:x")
    assert failed.code == 1
    assert "has []" in failed.err  # programs get none of these variables
