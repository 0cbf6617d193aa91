"""The check of `interlock doctor`: whether collectors accept what would be exported to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from interlock.telemetry.exporter import Exporter
from interlock.telemetry.metering import MetricExporter
from interlock.telemetry.settings import Export, TracingSettings, read_settings

if TYPE_CHECKING:
    from interlock.telemetry.sdk import SdkExporter


class CheckedSignal(Struct, frozen=True):
    """A signal that is exported.

    Attributes:
        name: "traces" or "metrics".
        target: The collector's URL, for people.
        problem: Why the collector does not accept the signal; "" if it does.
    """

    name: str
    target: str
    problem: str


def check_signals(environ: Mapping[str, str], command: str) -> Iterator[CheckedSignal]:
    """Send an empty export of each signal that is on, and yield what came of it.

    Args:
        environ: The environment variables.
        command: The command whose signals are checked.

    Raises:
        ConfigError: A variable is not valid, or needs what interlock does not have.
    """
    settings = read_settings(environ, command)
    tracing, metering = settings.tracing, settings.metering
    if tracing is not None:
        yield _checked("traces", _spans(tracing), tracing.export)
    if metering is not None:
        metrics = MetricExporter(metering.export, metering.resource)
        yield _checked("metrics", metrics, metering.export)


def _spans(tracing: TracingSettings) -> Exporter | SdkExporter:
    if not tracing.needs_sdk:
        return Exporter(tracing.export, tracing.resource)
    from interlock.telemetry.sdk import SdkExporter

    return SdkExporter(tracing.export, tracing.resource)


def _checked(
    name: str, exporter: Exporter | MetricExporter | SdkExporter, export: Export
) -> CheckedSignal:
    target = f"{exporter.shown}, with headers" if export.headers else exporter.shown
    return CheckedSignal(name, target, exporter.check())
