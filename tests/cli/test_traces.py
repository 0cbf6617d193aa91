"""Traces of the real programs, as a collector gets them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock import Client
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
        (self.key,) = re.findall(r"^key for this run: (\S+)$", "".join(lines), re.M)

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
    """Return the names of a span and of the spans around it, the root first."""
    by_id = {each["spanId"]: each for each in collector.spans}
    names = [span["name"]]
    while parent := span.get("parentSpanId"):
        span = by_id[parent]
        names.insert(0, f"{span['name']} {span['resource']['service.name']}")
    return names


def test_one_tree_from_a_chat_through_a_gateway_to_a_server_on_stdio(
    traced: Traced, collector: Collector, program, script, home: Path
):
    model = script({"x": {}}, "canary-answer")
    text = json.loads(Path(model.partition(":")[2]).read_text())
    text[0]["tool_calls"] = [
        {"id": "1", "name": "g__t__add", "input": {"a": 1, "b": 2, "note": "canary-argument"}}
    ]
    Path(model.partition(":")[2]).write_text(json.dumps(text))
    file = home / "chat.json"
    file.write_text(json.dumps({"mcpServers": {"g": traced.entry}}))
    chat = program(
        *("chat", "--config", file, "--model", model, "--yes", "canary-prompt"),
        env={**os.environ, **traced.variables},
    )
    answer, errors = chat.communicate()
    assert chat.returncode == 0, errors
    errors += traced.end()

    assert "canary-answer" in answer
    served = next(each for each in collector.spans if each["resource"]["service.name"] == "x")
    assert path_of(collector, served) == []
