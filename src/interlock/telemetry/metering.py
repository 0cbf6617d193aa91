"""Exports a gateway's metrics to a collector, in regular intervals and at the end.

The event loop reads the metrics, and a thread sends them. Metrics are cumulative, so the next
snapshot replaces one that could not be sent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic, time_ns
from typing import TYPE_CHECKING

from interlock import aio
from interlock.layers.exposition import Family
from interlock.telemetry import encoding
from interlock.telemetry.collector import Collector
from interlock.telemetry.settings import JSON, Export
from interlock.telemetry.span import Value

if TYPE_CHECKING:
    from interlock.telemetry.sdk import SdkCollector


class MetricExporter:
    """Sends metrics to a collector.

    Args:
        settings: The collector, and how metrics are sent to it.
        resource: The attributes of this process.
        clock: The monotonic clock, in seconds.

    Attributes:
        shown: The collector's URL, for messages.
    """

    def __init__(
        self,
        settings: Export,
        resource: Mapping[str, Value],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._interval = settings.delay
        self._start = time_ns()
        self._latest: tuple[Sequence[Family], int] | None = None
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._collector: _JsonCollector | SdkCollector
        if settings.protocol == JSON:
            self._collector = _JsonCollector(settings, resource, clock)
        else:
            from interlock.telemetry.sdk import SdkCollector

            self._collector = SdkCollector(settings, resource)
        self.shown = self._collector.shown

    @asynccontextmanager
    async def following(
        self, read: Callable[[], Awaitable[Sequence[Family]]]
    ) -> AsyncGenerator[None, None]:
        """Export what `read` returns, in regular intervals and at the end of the block."""

        async def export() -> None:
            while True:
                await asyncio.sleep(self._interval)
                self.put(await read())

        async with aio.beside(export()):
            try:
                yield
            finally:
                self.put(await read())

    def put(self, families: Sequence[Family]) -> None:
        """Send metrics, instead of those that are not sent yet."""
        self._latest = families, time_ns()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="interlock-otlp-metrics", daemon=True
            )
            self._thread.start()
        self._wake.set()

    def check(self) -> str:
        """Send an empty request; return the problem, or "" if the collector accepts it."""
        return self._collector.check()

    def stop(self, timeout: float) -> None:
        """Send the last metrics, within `timeout` seconds; do not wait for that."""
        self._collector.stop(timeout)
        self._wake.set()

    def close(self, timeout: float) -> None:
        """Send the last metrics, and return after `timeout` seconds at the latest."""
        self.stop(timeout)
        if self._thread is not None:
            self._thread.join(timeout)

    # In the thread

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            is_last = self._collector.is_stopping
            latest, self._latest = self._latest, None
            if latest is not None and not self._collector.is_over:
                families, at = latest
                self._collector.send_metrics(families, self._start, at)
            if is_last:
                return


class _JsonCollector(Collector):
    """A collector of metrics in JSON."""

    def __init__(
        self, settings: Export, resource: Mapping[str, Value], clock: Callable[[], float]
    ) -> None:
        super().__init__(settings, "metrics", clock=clock)
        self._resource = resource

    def send_metrics(self, families: Sequence[Family], start: int, end: int) -> None:
        """Send a snapshot of metrics; see `encoding.metrics_request`."""
        self.send(encoding.metrics_request(families, self._resource, start, end))

    def check(self) -> str:
        """Send an empty request; return the problem, or "" if the collector accepts it."""
        return self.probe(encoding.metrics_request((), self._resource, 0, 0))
