"""The export by the SDK of OpenTelemetry, for what the base install lacks.

That is protobuf over HTTP and gRPC, and the samplers and propagators of other packages. The SDK
reads the variables OTEL_* itself. The module needs the extra `otel`.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from opentelemetry.sdk.metrics import export as metrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from interlock import __version__
from interlock.layers.exposition import COUNTER, Family, Labels
from interlock.telemetry import names
from interlock.telemetry.collector import CollectorReports
from interlock.telemetry.settings import GRPC, Export
from interlock.telemetry.span import Value
from interlock.text import urls

CHECK_PATIENCE = 2.0  # seconds
_PACKAGE = "opentelemetry.exporter.otlp.proto"
_LINES = ("opentelemetry.exporter", "opentelemetry.sdk")  # loggers; see `_ReportedExporter`


def _exporter(kind: str, settings: Export) -> Any:
    """Return the SDK's exporter of spans or metrics, with the settings of its variables."""
    for name in _LINES:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    protocol = "grpc" if settings.protocol == GRPC else "http"
    signal = "trace" if kind == "Span" else "metric"
    module = import_module(f"{_PACKAGE}.{protocol}.{signal}_exporter")
    return getattr(module, f"OTLP{kind}Exporter")()


class _ReportedExporter(SpanExporter):
    """Counts the spans that an exporter sends; logs one line when it begins to fail."""

    def __init__(
        self, exporter: SpanExporter, counts: Counter[str], reports: CollectorReports
    ) -> None:
        self._exporter = exporter
        self._counts = counts
        self._reports = reports

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        is_sent = result == SpanExportResult.SUCCESS
        self._counts["exported" if is_sent else "failed"] += len(spans)
        if is_sent:
            self._reports.recovered(self._counts["failed"])
        else:
            self._reports.failed("the export failed")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class SdkExporter:
    """A provider of the SDK that exports the spans of this process.

    Args:
        settings: The collector.
        resource: The attributes of this process.

    Attributes:
        provider: The provider.
        shown: The collector's URL, for messages.
        counts: The numbers of spans: "exported" and "failed".
    """

    def __init__(self, settings: Export, resource: Mapping[str, Value]) -> None:
        self.counts: Counter[str] = Counter()
        self.shown = urls.display(settings.url)
        self._url = settings.url
        self._exporter = _exporter("Span", settings)
        self._reports = CollectorReports("spans", self.shown)
        reported = _ReportedExporter(self._exporter, self.counts, self._reports)
        self.provider = TracerProvider(resource=Resource(dict(resource)), shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(reported))
        self._ending: threading.Thread | None = None

    def check(self) -> str:
        """Send an empty request; return the problem, or "" if the collector accepts it."""
        export = self._exporter.export
        return _problem(lambda: bool(export(()) == SpanExportResult.SUCCESS), self._exporter)

    def stop(self, timeout: float) -> None:
        """Send the last spans, and do not wait for that."""

        def end() -> None:
            with _ending(self._exporter, timeout):
                _end_if_refused(self._exporter, self._url)
                self.provider.shutdown()

        self._ending = _start_thread(end)

    def close(self, timeout: float) -> None:
        """Wait until the last spans are sent, at most `timeout` seconds."""
        if self._ending is not None:
            self._ending.join(timeout)
            if self._ending.is_alive():
                self._reports.failed("the last ones were not accepted in time")


class SdkCollector:
    """Sends metrics by the SDK's exporter; see `Collector`.

    Args:
        settings: The collector.
        resource: The attributes of this process.
    """

    def __init__(self, settings: Export, resource: Mapping[str, Value]) -> None:
        self.shown = urls.display(settings.url)
        self._url = settings.url
        self._exporter = _exporter("Metric", settings)
        self._resource = Resource(dict(resource))
        self._reports = CollectorReports("metrics", self.shown)
        self.is_stopping = self.is_over = False

    def check(self) -> str:
        """Send an empty request; return the problem, or "" if the collector accepts it."""
        return _problem(lambda: self._send((), 0, 0), self._exporter)

    def stop(self, timeout: float) -> None:
        """Send nothing after `timeout` seconds."""
        self.is_stopping = True
        timer = threading.Timer(timeout, self._exporter.shutdown)
        timer.daemon = True
        timer.start()
        _start_thread(lambda: _end_if_refused(self._exporter, self._url))

    def send_metrics(self, families: Iterable[Family], start: int, end: int) -> None:
        """Send a snapshot of metrics; see `encoding.metrics_request`."""
        if self._send(families, start, end):
            self._reports.recovered(0)
        else:
            self._reports.failed("the export failed")

    def _send(self, families: Iterable[Family], start: int, end: int) -> bool:
        found = [_metric(each, start, end) for each in families if each.values or each.histograms]
        scope = metrics.ScopeMetrics(InstrumentationScope("interlock", __version__), found, "")
        data = metrics.MetricsData([metrics.ResourceMetrics(self._resource, [scope], "")])
        return bool(self._exporter.export(data) == metrics.MetricExportResult.SUCCESS)


def _metric(family: Family, start: int, end: int) -> metrics.Metric:
    name, unit = names.metric(family.name)
    cumulative = metrics.AggregationTemporality.CUMULATIVE
    data: Any
    if family.histograms:
        unknown: Any = None  # the registry keeps neither the least nor the greatest value
        points = [
            metrics.HistogramDataPoint(
                *(_labels(labels), start, end, sum(counts), total, counts, bounds),
                min=unknown,
                max=unknown,
            )
            for labels, bounds, counts, total in family.histograms
        ]
        data = metrics.Histogram(points, cumulative)
    else:
        values = [
            metrics.NumberDataPoint(_labels(labels), start, end, float(value))
            for labels, value in family.values
        ]
        is_counter = family.name.endswith(COUNTER)
        data = metrics.Sum(values, cumulative, True) if is_counter else metrics.Gauge(values)
    return metrics.Metric(name, family.help, unit, data)


def _labels(labels: Labels) -> dict[str, str]:
    return {names.LABELS.get(key, key): value for key, value in labels}


def _problem(send: Callable[[], bool], exporter: Any) -> str:
    """Send a request; return the problem, or "" if the collector accepts it."""
    with _ending(exporter, CHECK_PATIENCE):
        return "" if send() else "the export failed"


def _start_thread(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name="interlock-otlp-end", daemon=True)
    thread.start()
    return thread


def _end_if_refused(exporter: Any, url: str) -> None:
    """End an exporter whose collector refuses connections, as it would retry for seconds."""
    parts = urlsplit(url)
    default = 443 if parts.scheme == "https" else 80
    if getproxies():  # the collector need not be reachable from here
        return
    try:
        socket.create_connection((parts.hostname, parts.port or default), CHECK_PATIENCE).close()
    except ConnectionRefusedError:
        exporter.shutdown()
    except OSError:
        pass  # the exporter's last request shows what is wrong


@contextmanager
def _ending(exporter: Any, timeout: float) -> Iterator[None]:
    """End an exporter that is still busy after `timeout` seconds, as it would try for longer."""
    timer = threading.Timer(timeout, exporter.shutdown)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
