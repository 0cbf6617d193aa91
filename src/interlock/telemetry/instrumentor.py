"""The entry point by which `opentelemetry-instrument` switches interlock's telemetry on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation import (  # type: ignore[attr-defined, unused-ignore]
    instrumentor,  # untyped
)

from interlock import observing
from interlock.telemetry import enable

_BaseInstrumentor: Any = instrumentor.BaseInstrumentor  # type: ignore[attr-defined, unused-ignore]


class InterlockInstrumentor(_BaseInstrumentor):
    """Makes spans with the provider that is given, or with the global one."""

    def instrumentation_dependencies(self) -> Collection[str]:
        return ()

    def _instrument(self, **options: Any) -> None:
        enable(options.get("tracer_provider"))

    def _uninstrument(self, **_: Any) -> None:
        observing.observer = None
