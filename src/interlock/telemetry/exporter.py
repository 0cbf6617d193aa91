"""Sends spans to a collector from one thread, in batches.

Rules:

1. The thread starts with the first span, so a process that forks before has none.
2. A full queue drops further spans. A batch is sent again only if the collector asks for that.
3. The log has one line when the collector begins to fail, and one when it recovers.
"""

from __future__ import annotations

import gzip
import http.client
import logging
import ssl
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.message import Message
from time import monotonic
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import msgspec
from msgspec import Struct

from interlock.telemetry import encoding
from interlock.telemetry.settings import Export
from interlock.telemetry.span import TraceSpan, Value
from interlock.text import urls

# The statuses after which a batch is sent again, and the pauses before that, in seconds.
# https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes
RETRIED = frozenset((429, 502, 503, 504))
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
MAX_ATTEMPTS = 5
MAX_ANSWER = 65_536  # bytes of an answer that are read

_log = logging.getLogger("interlock.telemetry")
_FAILURES = (OSError, http.client.HTTPException, ValueError)


class _Partial(Struct, rename="camel", frozen=True):
    rejected_spans: int | str = 0


class _Answer(Struct, rename="camel"):
    partial_success: _Partial = _Partial()


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects: the headers may contain a key, which another server must not see."""

    def redirect_request(self, *_: object) -> None:
        return None


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
        self._resource = resource
        self._clock = clock
        self._queue: deque[TraceSpan] = deque()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._deadline = float("inf")
        self._fails = False
        self.shown = urls.display(settings.url)
        handlers: list[HTTPSHandler | HTTPRedirectHandler] = [_NoRedirects()]
        if settings.url.startswith("https:"):
            context = ssl.create_default_context(cafile=settings.certificate or None)
            if settings.client_certificate:
                context.load_cert_chain(settings.client_certificate, settings.client_key or None)
            handlers.append(HTTPSHandler(context=context))
        self._open = build_opener(*handlers).open

    def add(self, span: TraceSpan) -> None:
        """Queue a span that has ended; drop it if the queue is full. Any thread may call this."""
        queue = self._queue
        if len(queue) >= self._settings.queue:
            self.counts["dropped"] += 1
            return
        queue.append(span)
        if self._thread is None:
            self._start()
        elif len(queue) == self._settings.batch:
            self._wake.set()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                name = "interlock-otlp"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()

    def check(self) -> str:
        """Send an empty request; return the problem, or "" if the collector accepts it."""
        return self._post(encoding.request((), self._resource), 0)[0]

    def close(self, timeout: float) -> None:
        """Send the last spans, and return after `timeout` seconds at the latest."""
        self._deadline = self._clock() + timeout
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout)

    # In the thread

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(self._settings.delay)
            self._wake.clear()
            while len(self._queue) >= self._settings.batch and not self._stop.is_set():
                self._send_batch()
            if self._queue and not self._stop.is_set():
                self._send_batch()
        while self._queue and self._clock() < self._deadline:
            if not self._send_batch():
                break

    def _send_batch(self) -> bool:
        """Send the oldest spans; return whether the collector accepted them."""
        queue = self._queue
        spans = [queue.popleft() for _ in range(min(len(queue), self._settings.batch))]
        body = encoding.request(spans, self._resource)
        if self._settings.is_compressed:
            body = gzip.compress(body, 1)
        pause = FIRST_PAUSE
        problem = ""
        for _ in range(MAX_ATTEMPTS):
            problem, wait = self._post(body, len(spans), pause)
            if not problem:
                self._report("")
                return True
            if wait is None or self._stop.is_set():
                break
            self._report(problem)
            self._stop.wait(min(wait, LONGEST_PAUSE))
            pause *= 2
        self.counts["failed"] += len(spans)
        self._report(problem)
        return False

    def _post(self, body: bytes, count: int, pause: float = 0.0) -> tuple[str, float | None]:
        """Send a batch once; `pause` is the usual number of seconds before another attempt.

        Returns:
            The problem, or "" if the batch was accepted; and the seconds before another attempt,
            or None if another attempt has no use.
        """
        settings = self._settings
        headers = {"Content-Type": "application/json", **settings.headers}
        if settings.is_compressed:
            headers["Content-Encoding"] = "gzip"
        timeout = max(min(settings.timeout, self._deadline - self._clock()), 0.01)
        try:
            request = Request(settings.url, body, headers, method="POST")  # noqa: S310 - http(s)
            with self._open(request, timeout=timeout) as answer:
                self._count(answer.read(MAX_ANSWER), count)
            return "", None
        except HTTPError as error:
            with error:
                wait = _retry_after(error.headers, pause) if error.code in RETRIED else None
                return f"it answered {error.code}", wait
        except _FAILURES as error:
            reason = getattr(error, "reason", error)
            return getattr(reason, "strerror", None) or type(reason).__name__, None

    def _count(self, answer: bytes, count: int) -> None:
        rejected = 0
        with suppress(msgspec.DecodeError, RecursionError, ValueError):  # such as an empty body
            rejected = int(msgspec.json.decode(answer, type=_Answer).partial_success.rejected_spans)
        self.counts["failed"] += min(max(rejected, 0), count)
        self.counts["exported"] += count - min(max(rejected, 0), count)

    def _report(self, problem: str) -> None:
        if problem and not self._fails:
            _log.warning("spans are not exported to %s: %s", self.shown, problem)
        elif not problem and self._fails:
            lost = self.counts["failed"] + self.counts["dropped"]
            _log.warning("spans are exported to %s again; %d were lost", self.shown, lost)
        self._fails = bool(problem)


def _retry_after(headers: Message, otherwise: float) -> float:
    """Return the seconds in the header Retry-After, or `otherwise` if it states none."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else otherwise
