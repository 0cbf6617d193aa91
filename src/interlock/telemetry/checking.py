"""Checks whether a collector accepts the signals that the environment switches on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from interlock.telemetry.exporter import Exporter
from interlock.telemetry.metering import MetricExporter
from interlock.telemetry.settings import TracingSettings, read_settings

if TYPE_CHECKING:
    from interlock.telemetry.sdk import SdkExporter


class CheckedSignal(Struct, frozen=True):
    """Traces or metrics, and whether the collector accepts them.

    Attributes:
        name: "traces" or "metrics".
        url: The collector's URL, for messages.
        has_headers: Whether requests have headers, which may be secrets.
        problem: Why the collector does not accept them; "" if it does.
    """

    name: str
    url: str
    has_headers: bool
    problem: str


def check_signals(environ: Mapping[str, str]) -> Iterator[CheckedSignal]:
    """Send an empty request for each signal that is on.

    Raises:
        ConfigError: A variable is not valid.
    """
    found = read_settings(environ, "doctor")
    exporter: Exporter | MetricExporter | SdkExporter
    if found.tracing is not None:
        exporter, headers = _exporter_of(found.tracing), found.tracing.export.headers
        yield CheckedSignal("traces", exporter.shown, bool(headers), exporter.check())
    if found.metering is not None:
        exporter = MetricExporter(found.metering.export, found.metering.resource)
        headers = found.metering.export.headers
        yield CheckedSignal("metrics", exporter.shown, bool(headers), exporter.check())


def _exporter_of(tracing: TracingSettings) -> Exporter | SdkExporter:
    if not tracing.needs_sdk:
        return Exporter(tracing.export, tracing.resource)
    from interlock.telemetry.sdk import SdkExporter

    return SdkExporter(tracing.export, tracing.resource)
