"""Switches telemetry on while a command runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from interlock import observing
from interlock.observing import environment_context
from interlock.telemetry.settings import read_settings

if TYPE_CHECKING:
    from interlock.telemetry.exporter import Exporter
    from interlock.telemetry.metering import MetricExporter


@contextmanager
def running(command: str, environ: Mapping[str, str], *, timeout: float) -> Iterator[None]:
    """Record and export telemetry within this context, if the environment switches it on.

    Args:
        command: The command's name, for the name of the service.
        environ: The environment variables.
        timeout: The most seconds that the last export may take.

    Raises:
        ConfigError: A variable is not valid.
    """
    settings = read_settings(environ, command)
    exporters: list[Exporter | MetricExporter] = []
    if settings.tracing is not None:
        from interlock.telemetry.exporter import Exporter
        from interlock.telemetry.tracer import Tracer

        spans = Exporter(settings.tracing.export, settings.tracing.resource)
        observing.observer = Tracer(settings.tracing, spans.add, environment_context())
        observing.span_counts = spans.counts
        exporters.append(spans)
    if settings.metering is not None:
        from interlock.telemetry.metering import MetricExporter

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
