"""Switches telemetry on while a command runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from interlock import observing
from interlock.observing import environment_context
from interlock.telemetry import enable
from interlock.telemetry.settings import TracingSettings, read_settings

if TYPE_CHECKING:
    from interlock.telemetry.exporter import Exporter
    from interlock.telemetry.metering import MetricExporter
    from interlock.telemetry.sdk import SdkExporter


@contextmanager
def running(command: str, environ: Mapping[str, str], *, timeout: float) -> Iterator[None]:
    """Record and export telemetry within this context, if the environment switches it on.

    If the program has a provider of OpenTelemetry, it is used as it is.

    Args:
        command: The command's name, for the name of the service.
        environ: The environment variables.
        timeout: The most seconds that the last export may take.

    Raises:
        ConfigError: A variable is not valid.
    """
    if observing.observer is not None or _has_provider():
        with _provided():
            yield
        return
    settings = read_settings(environ, command)
    exporters: list[Exporter | MetricExporter | SdkExporter] = []
    if settings.tracing is not None:
        exporters.append(_trace(settings.tracing))
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


def _trace(settings: TracingSettings) -> Exporter | SdkExporter:
    """Make spans of what the program does; return their exporter."""
    exporter: Exporter | SdkExporter
    if settings.needs_sdk:
        from interlock.telemetry.provider import ProviderTracer
        from interlock.telemetry.sdk import SdkExporter

        exporter = SdkExporter(settings.export, settings.resource)
        observing.observer = ProviderTracer(exporter.provider, environment_context())
    else:
        from interlock.telemetry.exporter import Exporter
        from interlock.telemetry.tracer import Tracer

        exporter = Exporter(settings.export, settings.resource)
        observing.observer = Tracer(settings, exporter.add, environment_context())
    observing.span_counts = exporter.counts
    return exporter


def _has_provider() -> bool:
    """Return whether the program has a provider of OpenTelemetry. Import none of its packages."""
    api = sys.modules.get("opentelemetry.trace")
    return api is not None and not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


@contextmanager
def _provided() -> Iterator[None]:
    """Use the provider that the program has, without an export of our own."""
    if observing.observer is not None:  # as `opentelemetry-instrument` has called `enable`
        yield
        return
    enable()
    try:
        yield
    finally:
        observing.observer = None
