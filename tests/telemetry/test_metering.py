"""The metrics that a collector gets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from interlock.histogram import Histogram
from interlock.layers.exposition import Family, by_label, family
from interlock.telemetry import metering
from interlock.telemetry.metering import MetricExporter
from interlock.telemetry.settings import Export
from tests.support.otlp_collector import collecting

RESOURCE = {"service.name": "tests", "service.instance.id": "1"}


def exporter(url: str, **options: Any) -> MetricExporter:
    return MetricExporter(Export(f"{url}/v1/metrics", **options), RESOURCE)


def counted(number: float) -> list[Family]:
    durations = Histogram((0.1, 1))
    durations.note(0.5)
    labels = (("mcp_method_name", "tools/list"),)
    return [
        family("interlock_calls_total", "Calls.", by_label("server", {"s": number})),
        family("interlock_kept_bytes", "Bytes.", {(): 7.0}),
        family("mcp_server_operation_duration_seconds", "Time.", {labels: durations}),
        family("interlock_restarts_total", "No sample.", {}),
    ]


def test_metrics_have_the_names_of_the_conventions_and_the_units_and_counts_of_the_registry():
    with collecting() as collector:
        sending = exporter(collector.url, is_compressed=True)
        sending.put(counted(2))
        sending.close(60.0)

    metrics = collector.metrics["1"]
    assert {name: (each["kind"], each["unit"]) for name, each in metrics.items()} == {
        "interlock.calls": ("sum", ""),
        "interlock.kept": ("gauge", "By"),
        "mcp.server.operation.duration": ("histogram", "s"),
    }
    assert metrics["interlock.calls"]["points"][(("server", "s"),)]["asDouble"] == 2
    (point,) = metrics["mcp.server.operation.duration"]["points"].values()
    assert point["attributes"] == [
        {"key": "mcp.method.name", "value": {"stringValue": "tools/list"}}
    ]
    assert (point["bucketCounts"], point["explicitBounds"]) == (["0", "1", "0"], [0.1, 1])
    assert (point["count"], point["sum"]) == ("1", 0.5)


async def test_metrics_are_exported_in_intervals_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
):
    waited: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0 if len(waited) < 3 else 3_600)

    monkeypatch.setattr(metering.asyncio, "sleep", pause)
    read = 0

    async def families() -> Sequence[Family]:
        nonlocal read
        read += 1
        return counted(read)

    with collecting() as collector:
        sending = exporter(collector.url, delay=15.0)
        async with sending.following(families):
            while len(waited) < 3:
                await sleep(0)
        sending.close(60.0)

    assert (waited, read) == ([15.0] * 3, 3)
    (point,) = collector.metrics["1"]["interlock.calls"]["points"].values()
    assert point["asDouble"] == 3  # the end


def test_a_collector_that_refuses_metrics_gets_the_next_ones():
    with collecting() as collector:
        collector.script = [(400, {})]
        sending = exporter(collector.url)
        sending.put(counted(1))
        collector.wait_for(1)
        sending.put(counted(2))
        sending.close(60.0)

    (point,) = collector.metrics["1"]["interlock.calls"]["points"].values()
    assert point["asDouble"] == 2
