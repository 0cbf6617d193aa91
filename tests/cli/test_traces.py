"""Traces of the real programs, as a collector gets them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from interlock import Client
from interlock.errors import RemoteError
from interlock.gateway.forwarding.refusals import REASON_KEY
from interlock.toolbox.names import wire_name
from tests.cli.conftest import ECHO
from tests.support.otlp_collector import Collector, Json, collecting
from tests.support.served import serving

Start = Callable[..., subprocess.Popen[str]]
PROMPT = "\x1b[?2004h"  # the line editor enables bracketed paste
REVISIONS = ("2025-11-25", "2026-07-28")
PEERS = Path(__file__).parents[1] / "interop" / "peers"
CANARIES = (
    *("canary-argument", "canary-result", "canary-prompt", "canary-answer", "canary-header"),
    *("canary-secret", "canary-user", "canary-made-up", "canary-uri"),
)
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

# Starts a program the first time only.
ONCE = """
import os, sys

os.close(os.open(f"{__file__}.started", os.O_CREAT | os.O_EXCL))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
SHOWS = """
from interlock import Context, Server

server = Server("shows")

def shown(context):
    with open(f"{__file__}.txt", "a") as file:
        print(context.trace.parent, file=file)
    return f"{context.trace.parent} {context.trace.state}"

@server.tool
async def show(context: Context) -> str:
    return shown(context)

@server.resource("show://x")
async def read(context: Context) -> str:
    return shown(context)

@server.prompt
async def prompt(context: Context) -> str:
    return shown(context)
"""
IMPORTED = """
import atexit, sys
atexit.register(
    lambda: print([each for each in sys.modules if "telemetry" in each], file=sys.stderr)
)
from interlock.cli import main
main()
"""

pytestmark = pytest.mark.slow("starts a gateway for each case")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


class Traced:
    """A gateway with telemetry on, a traced server on stdio behind it, and the echo server.

    Attributes:
        variables: The variables that switch telemetry on.
        key: The key of this run.
    """

    def __init__(
        self,
        program: Start,
        folder: Path,
        collector: Collector,
        others: Json | None = None,
        **variables: str,
    ) -> None:
        self.variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-key=canary-header",
            **variables,
        }
        (folder / "tools.py").write_text(TOOLS)
        (folder / "once.py").write_text(ONCE)
        run = ["-m", "interlock", "run", str(folder / "tools.py")]
        servers = {
            "t": {"command": sys.executable, "args": run, "env": self.variables},
            "e": {"command": sys.executable, "args": ECHO, "env": {"API_TOKEN": "canary-secret"}},
            "x": {"command": sys.executable, "args": [str(folder / "once.py"), *ECHO]},
            **(others or {}),
        }
        policy = {
            "rules": [
                {"id": "most", "effect": "allow", "who": ["*"], "tools": ["*:*"]},
                {"id": "never", "effect": "deny", "who": ["*"], "tools": ["e:picture"]},
                {"id": "rude", "effect": "deny", "who": ["*"], "tools": ["e:say"]}
                | {"arguments": {"text": {"const": "canary-argument"}}},
                {"id": "asked", "effect": "ask", "who": ["*"], "tools": ["e:fail"]},
            ]
        }
        file = folder / "gateway.json"
        file.write_text(json.dumps({"mcpServers": servers, "gateway": {"policy": policy}}))
        log = {"INTERLOCK_LOG": str(folder / "log"), "INTERLOCK_LOG_FORMAT": "json"}
        self._log = folder / "log"
        self._program = program(
            *("serve", "--config", file, "--http", "127.0.0.1:0"),
            env={**os.environ, **self.variables, **log},
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

    def entry(self, key: str = "") -> Json:
        """Return the configuration of a client with a key; the key of this run by default."""
        return {"url": self.url, "headers": {"Authorization": f"Bearer {key or self.key}"}}

    @property
    def lines(self) -> list[Json]:
        """The lines of the gateway's log."""
        return [json.loads(each) for each in self._log.read_text().splitlines()]

    def scrape(self) -> str:
        """Return the metrics of the gateway."""
        request = Request(self.url.replace("/mcp", "/metrics"), headers=self.entry()["headers"])
        with urlopen(request) as page:
            text: str = page.read().decode()
        return text

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


def chatted(
    traced: Traced, program: Start, home: Path, calls: dict[str, Json], **variables: str
) -> None:
    """Chat once; the model calls these tools of the gateway."""
    script = home / "script.json"
    asked = [
        {"id": f"model-{name}", "name": wire_name("g", name), "input": arguments}
        for name, arguments in calls.items()
    ]
    script.write_text(json.dumps([{"tool_calls": asked}, {"content": "canary-answer"}]))
    file = home / "chat.json"
    file.write_text(json.dumps({"mcpServers": {"g": traced.entry()}}))
    chat = program(
        *("chat", "--config", file, "--model", f"scripted:{script}", "--yes", "canary-prompt"),
        env={**os.environ, **traced.variables, "INTERLOCK_LOG": str(home / "log"), **variables},
    )
    answer, errors = chat.communicate()
    assert chat.returncode == 0, errors
    assert "canary-answer" in answer


def test_one_tree_from_a_chat_through_a_gateway_to_a_server_on_stdio(
    traced: Traced, collector: Collector, program: Start, home: Path, interlock
):
    chatted(*(traced, program, home), {"t__add": {"a": 1, "b": 2, "note": "canary-argument"}})
    errors = traced.end()

    assert path_of(collector, of_service(collector, "run", "tools/call add")) == [
        "interlock-chat: invoke_agent interlock",
        "interlock-chat: execute_tool t__add",
        "interlock-chat: tools/call t__add",
        "interlock-serve: tools/call t__add",
        "interlock-serve: tools/call add",
        "interlock-run: tools/call add",
    ]
    answered = collector.named("invoke_agent interlock")
    assert re.fullmatch("[0-9a-f]{16}", answered["attributes"]["gen_ai.conversation.id"])
    models = [each for each in collector.spans if each["name"] == "chat script.json"]
    assert [each["parentSpanId"] for each in models] == 2 * [answered["spanId"]]
    called = collector.named("execute_tool t__add")["attributes"]
    assert called["gen_ai.tool.call.id"] == "model-t__add"
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
    # The call's id in the gateway is in its spans, its log lines and its audit record, which names
    # the trace.
    served = of_service(collector, "serve", "tools/call t__add")
    sent = of_service(collector, "serve", "tools/call add")
    id = served["attributes"]["interlock.call.id"]
    assert sent["attributes"]["interlock.call.id"] == id
    place = {"trace_id": served["traceId"], "span_id": served["spanId"], "call_id": id}
    lines = [each for each in traced.lines if each.get("tool") == "t:add"]
    assert lines
    assert all(each.items() >= place.items() for each in lines)
    exported = interlock("audit", "export")
    intent = next(
        each
        for each in map(json.loads, exported.out.splitlines())
        if each["kind"] == "intent" and id in each.values()
    )
    assert intent["traceparent"] == f"00-{served['traceId']}-{served['spanId']}-01"
    assert "clientTraceparent" not in intent
    assert {each["kind"] for each in (served, sent)} == {2, 3}
    assert sent["attributes"].keys() >= {"jsonrpc.request.id", "mcp.protocol.version"}
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
    shown = repr((collector.spans, traced.lines)) + errors + (home / "log").read_text()
    assert [each for each in (*CANARIES, traced.key) if each in shown] == []
    assert collector.requests[-1]["x-key"] == "canary-header"


@pytest.mark.program("servers of others")
def test_servers_of_others_continue_the_trace_over_each_transport(
    program: Start, tmp_path: Path, home: Path, collector: Collector
):
    def served(way: str, peer: str, over: str) -> list[str]:
        file = str(PEERS / f"{peer}_server.py")
        return ["-W", "ignore", str(PEERS / "traced.py"), way, file, over]

    def variables(name: str) -> Json:
        return {"COLLECTOR": collector.url, "OTEL_SERVICE_NAME": name}

    ways = {
        "plain": ("plain", "fastmcp4", "http"),
        "instrumented": ("asgi", "fastmcp4", "http"),
        "legacy": ("plain", "fastmcp4", "sse"),
        "official": ("plain", "mcp2", "http"),
    }
    others: Json = {
        name: {"command": sys.executable, "args": served("plain", peer, "stdio")}
        | {"env": variables(name)}
        for name, peer in (("stdio", "fastmcp4"), ("piped", "mcp2"))
    }
    with ExitStack() as stack:
        for name, way in ways.items():
            command = [sys.executable, *served(*way)]
            log, environment = tmp_path / f"{name}.log", variables(name)
            url = stack.enter_context(serving(command, log, **environment))
            others[name] = {"type": "sse" if way[2] == "sse" else "http", "url": url}
        traced = Traced(program, tmp_path, collector, others)
        tools = [f"{name}__add" for name in others]
        chatted(traced, program, home, {each: {"a": 1, "b": 2} for each in tools})
        traced.end()

    for name in others:
        (last,) = (
            each
            for each in collector.spans
            if (each["resource"]["service.name"], each["name"]) == (name, "tools/call add")
        )
        around = [f"{name}: POST /mcp"] if name == "instrumented" else []
        assert path_of(collector, last) == [
            "interlock-chat: invoke_agent interlock",
            f"interlock-chat: execute_tool {name}__add",
            f"interlock-chat: tools/call {name}__add",
            f"interlock-serve: tools/call {name}__add",
            "interlock-serve: tools/call add",
            *around,
            f"{name}: tools/call add",
        ]


def error_types(text: str, metric: str) -> set[tuple[str, str]]:
    """Return the tools, or else the methods, and the errors of a metric."""
    found = set()
    for line in re.findall(f"^{metric}_count{{(.+?)}}", text, re.M):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        name = labels.get("gen_ai_tool_name") or labels["mcp_method_name"]
        found.add((name, labels.get("error_type", "")))
    return found


async def call_in_each_failing_way(entry: Json, revision: str) -> set[str]:
    """Return the references that the client gets with its errors."""
    under_way = asyncio.Event()
    references = set()
    async with Client.http(**entry, revision=revision) as client:
        for name, arguments in (
            ("t__fail", {}),
            ("t__add", {"a": "canary-argument", "b": 1}),
            ("e__picture", {}),
            ("e__fail", {"text": "canary-argument"}),
            ("e__say", {"text": "canary-argument"}),
            ("canary-made-up", {}),
        ):
            with suppress(RemoteError):
                result = await client.call_tool(name, arguments)
                if REASON_KEY in (result.meta or {}):
                    references.add(result.meta[REASON_KEY]["reference"])
        with suppress(RemoteError):
            await client.request("canary/method")
        with suppress(RemoteError):
            await client.read_resource("file:///canary-uri")
        with suppress(RemoteError):
            await client.get_prompt("canary-prompt")
        waiting = client.call_tool("e__wait", {}, progress=lambda _: under_way.set())
        cancelled = asyncio.create_task(waiting)
        await under_way.wait()
        cancelled.cancel()
        if revision == REVISIONS[-1]:
            for name in ("x__exit", "x__say"):
                assert (await client.call_tool(name, {})).is_error
    return references


def test_spans_state_how_requests_failed_and_made_up_names_name_none(
    traced: Traced, collector: Collector, interlock
):
    key = interlock("keys", "create", "canary-user", "--scope", "mcp:*").out.strip()
    references = set[str]().union(
        *(asyncio.run(call_in_each_failing_way(traced.entry(key), each)) for each in REVISIONS)
    )
    timed = error_types(traced.scrape(), "mcp_server_operation_duration_seconds")
    errors = traced.end()

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
        ("tools/call e__fail", "approval_pending", 2),
        ("tools/call e__wait", "cancelled", 2),
        ("tools/call e__say", "denied_by_rule", 2),
        ("tools/call x__exit", "upstream_closed", 2),
        ("tools/call x__say", "server_down", 2),
        ("tools/call", "unknown_tool", 2),
        ("_OTHER", "-32601", 2),
        ("resources/read", "-32002", 2),
        ("resources/read", "-32602", 2),
        ("prompts/get", "arguments_invalid", 2),
    }
    expected = {
        (name.removeprefix("tools/call ").replace("__", ":"), error) for name, error, _ in failed
    }
    assert timed >= expected
    assert len(references) >= 3
    assert references <= {each["attributes"].get("interlock.call.id") for each in served}
    logged = {each.get("call_id") for each in traced.lines if "trace_id" in each}
    assert references <= logged
    assert "canary" not in repr((collector.spans, traced.lines)) + errors


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


def test_a_chat_without_telemetry_passes_its_trace_on_with_resources_and_prompts(
    servers, terminal, script, home: Path
):
    (home / "shows.py").write_text(SHOWS)
    run = ["-m", "interlock", "run", str(home / "shows.py")]
    servers(s={"command": sys.executable, "args": run})
    parent = f"00-{'4b' * 16}-{'00f1' * 4}-01"
    chat = terminal("chat", "--model", script("Read.", "Sent."), TRACEPARENT=parent)
    for line, answer in (("/read s:show://x Why?", "Read."), ("/prompt s:prompt", "Sent.")):
        chat.expect(PROMPT)
        chat.type(f"{line}\r")
        chat.expect(answer)

    shown = (home / "shows.py.txt").read_text().splitlines()
    assert shown == [parent, parent]


def test_a_command_without_telemetry_passes_its_trace_on_and_imports_nothing(
    servers, home: Path, monkeypatch: pytest.MonkeyPatch
):
    (home / "shows.py").write_text(SHOWS)
    command = {
        "command": sys.executable,
        "args": ["-m", "interlock", "run", str(home / "shows.py")],
    }
    servers(s=command)
    parent = f"00-{'4b' * 16}-{'00f1' * 4}-01"
    monkeypatch.setenv("TRACEPARENT", parent)
    monkeypatch.setenv("TRACESTATE", "vendor=a")

    for arguments, disabled in (
        (["call", "s:show"], ""),
        (["read", "s:show://x"], ""),
        (["prompt", "s:prompt"], "true"),
    ):
        if disabled:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
            monkeypatch.setenv("OTEL_SDK_DISABLED", disabled)
        ran = subprocess.run(
            [sys.executable, "-c", IMPORTED, *arguments], capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        assert parent in ran.stdout, arguments
        assert "vendor=a" in ran.stdout
        assert "tracer" not in ran.stderr
        assert disabled or ran.stderr.splitlines()[-1] == "[]"


async def say(entry: Json, count: int) -> None:
    """Call a tool that many times, and check its results."""
    async with Client.http(**entry) as client:
        for number in range(count):
            assert (await client.call_tool("e__say", {"text": str(number)})).text == str(number)


@pytest.mark.parametrize("failure", ["away", "silent", "unavailable"])
def test_a_failing_collector_delays_no_call_and_no_end(
    failure: str, program: Start, tmp_path: Path, home: Path, collector: Collector, servers
):
    servers()
    with socket.create_server(("127.0.0.1", 0)) as unused:
        away = Collector(f"http://127.0.0.1:{unused.getsockname()[1]}")
    if failure == "silent":
        collector.answers.clear()
    if failure == "unavailable":
        collector.script = [(503, {"retry-after": "600"})] * 1_000
    patient = {
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "600000",
        "OTEL_METRIC_EXPORT_INTERVAL": "50",
    }
    failing = away if failure == "away" else collector
    traced = Traced(program, tmp_path, failing, **patient)
    asyncio.run(say(traced.entry(), 1))
    if failing is collector:
        collector.wait_for(1)
    # Each of these calls and programs ends before the collector answers or is asked again.
    asyncio.run(say(traced.entry(), 20))
    traced.end()
    call = program("call", "e:say", "text=x", env={**os.environ, **traced.variables})
    answer, errors = call.communicate()
    assert (call.returncode, answer.strip()) == (0, "x"), errors
    shown = [each["message"] for each in traced.lines if each["logger"] == "interlock.telemetry"]
    assert len(shown) <= 2, shown  # one line for spans, and one for metrics
