"""Metrics of a real gateway, as a collector and as Prometheus get them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from interlock import Client
from interlock.errors import RemoteError
from interlock.layers.metrics import OPERATION_BOUNDS
from interlock.telemetry import names
from tests.cli.conftest import ECHO
from tests.support.otlp_collector import Json, collecting

pytestmark = pytest.mark.slow("starts a gateway")

_SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", re.M)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# What differs between the two readings of a gateway without calls.
_MOVING = (
    *("process_", "interlock_loop_lag", "interlock_database", "interlock_spans"),
    "interlock_audit",
)


def counts_of(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the counters, gauges and counts of a page in Prometheus' text format."""
    found = {}
    for name, labels, value in _SAMPLE.findall(text):
        if name.endswith(("_bucket", "_sum")) or name.startswith(_MOVING):
            continue
        found[name.removesuffix("_count"), frozenset(_LABEL.findall(labels))] = float(value)
    return found


def exported(metrics: dict[str, Json]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the same of metrics that a collector has got, by the names that it passes on."""
    found = {}
    for name, metric in metrics.items():
        unit = {"s": "_seconds", "By": "_bytes"}.get(metric["unit"], "")
        restored = name.replace(".", "_") + unit + ("_total" if metric["kind"] == "sum" else "")
        if restored.startswith(_MOVING):
            continue
        for labels, point in metric["points"].items():
            key = restored, frozenset((label.replace(".", "_"), each) for label, each in labels)
            found[key] = float(point["count"] if "count" in point else point["asDouble"])
    return found


async def call(url: str, headers: dict[str, str]) -> None:
    """List tools, call one, and request one that does not exist, in both eras."""
    for revision in ("2025-11-25", "2026-07-28"):
        async with Client.http(url, headers=headers, revision=revision) as client:
            await client.list_tools()
            for text in ("a", "b"):
                await client.call_tool("e__say", {"text": text})
            with suppress(RemoteError):
                await client.call_tool("made_up", {})


def test_a_collector_gets_the_counts_of_the_metrics_page_at_the_end(
    program: Callable[..., subprocess.Popen[str]], tmp_path: Path, home: Path
):
    file = tmp_path / "gateway.json"
    file.write_text(json.dumps({"mcpServers": {"e": {"command": sys.executable, "args": ECHO}}}))
    with collecting() as collector:
        serve = program(
            *("serve", "--config", file, "--http", "127.0.0.1:0"),
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
        )
        assert serve.stderr is not None
        lines = ""
        while "VS Code" not in lines:
            lines += serve.stderr.readline()
        (url,) = re.findall(r"^serving at (\S+)$", lines, re.M)
        (key,) = re.findall("^key for this run: in (.+)$", lines, re.M)
        headers = {"Authorization": f"Bearer {Path(key).read_text().strip()}"}
        asyncio.run(call(url, headers))
        request = urllib.request.Request(url.replace("/mcp", "/metrics"), headers=headers)
        with urllib.request.urlopen(request) as page:
            scraped = counts_of(page.read().decode())
        serve.send_signal(signal.SIGTERM)
        serve.communicate()
        assert serve.returncode == 0

    (metrics,) = collector.metrics.values()
    pushed = exported(metrics)
    for each, count in scraped.items():
        if each[0] not in ("interlock_ready", "interlock_sessions"):  # the gateway was shut down
            assert pushed[each] == pytest.approx(count), each
    assert pushed["interlock_ready", frozenset()] == 0
    assert scraped["interlock_calls_total", frozenset({("server", "e"), ("outcome", "ok")})] == 4
    for name in (names.SERVER_DURATION, names.CLIENT_DURATION):
        for point in metrics[name]["points"].values():
            assert tuple(point["explicitBounds"]) == OPERATION_BOUNDS
    assert collector.spans
