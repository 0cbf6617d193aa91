"""Switches telemetry on while a command runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic

from interlock import observing
from interlock.observing import trace_context
from interlock.telemetry.exporter import Exporter
from interlock.telemetry.metering import MetricExporter
from interlock.telemetry.settings import read_settings
from interlock.telemetry.tracer import Tracer


@contextmanager
def running(command: str, environ: Mapping[str, str], *, timeout: float) -> Iterator[None]:
    """Record and export telemetry within this context, if the environment switches it on.

    Args:
        command: The command's name, for the name of the service.
        environ: The environment variables; TRACEPARENT has the context that the command begins in.
        timeout: The most seconds that the last export may take.

    Raises:
        ConfigError: A variable is not valid.
    """
    settings = read_settings(environ, command)
    exporters: list[Exporter | MetricExporter] = []
    if settings.tracing is not None:
        spans = Exporter(settings.tracing.export, settings.tracing.resource)
        ambient = trace_context(environ.get("TRACEPARENT"), environ.get("TRACESTATE", ""))
        observing.observer = Tracer(settings.tracing, spans.add, ambient)
        observing.span_counts = spans.counts
        exporters.append(spans)
    if settings.metering is not None:
        metrics = MetricExporter(settings.metering.export, settings.metering.resource)
        observing.meter = metrics
        exporters.append(metrics)
    try:
        yield
    finally:
        observing.observer, observing.meter, observing.span_counts = None, None, None
        end = monotonic() + timeout
        for each in exporters:
            each.stop(timeout)
        for each in exporters:
            each.close(max(0.0, end - monotonic()))
