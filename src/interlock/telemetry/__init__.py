"""Traces and metrics by OpenTelemetry: spans, their sampling, and the export by OTLP over HTTP.

It needs no package of OpenTelemetry. The commands switch it on; see `running`. A program that has a
provider of OpenTelemetry calls `enable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock import observing
from interlock.errors import MissingExtra

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["enable"]


def enable(tracer_provider: TracerProvider | None = None) -> None:
    """Make spans of what interlock does with a provider of OpenTelemetry, which exports them.

    Call it before the first client, toolbox or server is made.

    Args:
        tracer_provider: The provider; None for the global one.

    Raises:
        MissingExtra: The package `opentelemetry-api` is not installed.
    """
    try:
        from interlock.telemetry.provider import ProviderTracer
    except ModuleNotFoundError:
        raise MissingExtra("interlock.telemetry.enable", "otel") from None
    observing.observer = ProviderTracer(tracer_provider, observing.environment_context())
