"""Sends spans to a collector from one thread, in batches.

Rules:

1. The thread starts with the first span, so a process that forks before has none.
2. A full queue drops further spans. A batch is sent again only if the collector asks for that.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic

import msgspec
from msgspec import Struct

from interlock.telemetry import encoding
from interlock.telemetry.collector import Collector
from interlock.telemetry.settings import Export
from interlock.telemetry.span import TraceSpan, Value


class _Partial(Struct, rename="camel", frozen=True):
    rejected_spans: int | str = 0


class _Answer(Struct, rename="camel"):
    partial_success: _Partial = _Partial()


class Exporter:
    """Sends spans to a collector.

    Args:
        settings: The collector, and how spans are sent to it.
        resource: The attributes of this process.
        clock: The monotonic clock, in seconds.

    Attributes:
        shown: The collector's URL, for messages.
        counts: The numbers of spans: "exported", "dropped" (the queue was full) and "failed".
    """

    def __init__(
        self,
        settings: Export,
        resource: Mapping[str, Value],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._settings = settings
        self._head = encoding.head(resource)
        self._queue: deque[bytes] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._collector = Collector(settings, "spans", clock=clock)
        self.shown = self._collector.shown

    def add(self, span: TraceSpan) -> None:
        """Queue a span that has ended; drop it if the queue is full. Any thread may call this.

        The span is encoded here, while it is in the processor's cache: in the thread, this would
        take twice as long and keep the interpreter's lock for milliseconds.
        """
        queue = self._queue
        waiting = len(queue)
        if waiting >= self._settings.queue:
            self.counts["dropped"] += 1
            return
        queue.append(encoding.span(span))
        if self._thread is None:
            self._start()
        elif waiting + 1 == self._settings.batch:
            self._wake.set()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                name = "interlock-otlp"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def check(self) -> str:
        """Send an empty request; return the problem, or "" if the collector accepts it."""
        return self._collector.probe(encoding.request(self._head, []))

    def stop(self, timeout: float) -> None:
        """Send the last spans, within `timeout` seconds; do not wait for that."""
        self._collector.stop(timeout)
        self._wake.set()

    def close(self, timeout: float) -> None:
        """Send the last spans, and return after `timeout` seconds at the latest."""
        self.stop(timeout)
        if self._thread is not None:
            self._thread.join(timeout)

    # In the thread

    def _run(self) -> None:
        collector = self._collector
        while not collector.is_stopping:
            self._wake.wait(self._settings.delay)
            self._wake.clear()
            while len(self._queue) >= self._settings.batch and not collector.is_stopping:
                self._send_batch()
            if self._queue and not collector.is_stopping:
                self._send_batch()
        while self._queue and not collector.is_over:
            if not self._send_batch():
                break

    def _send_batch(self) -> bool:
        """Send the oldest spans; return whether the collector accepted them."""
        queue = self._queue
        count = min(len(queue), self._settings.batch)
        spans = [queue.popleft() for _ in range(count)]
        answer = self._collector.send(encoding.request(self._head, spans), self._count_lost)
        if answer is None:
            self.counts["failed"] += count
        else:
            self._count(answer, count)
        return answer is not None

    def _count_lost(self) -> int:
        return self.counts["failed"] + self.counts["dropped"]

    def _count(self, answer: bytes, count: int) -> None:
        rejected = 0
        with suppress(msgspec.DecodeError, RecursionError, ValueError):  # such as an empty body
            rejected = int(msgspec.json.decode(answer, type=_Answer).partial_success.rejected_spans)
        self.counts["failed"] += min(max(rejected, 0), count)
        self.counts["exported"] += count - min(max(rejected, 0), count)
