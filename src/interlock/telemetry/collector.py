"""A collector that receives OTLP over HTTP.

Specification: https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import gzip
import http.client
import logging
import ssl
import threading
from collections.abc import Callable
from email.message import Message
from time import monotonic
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from interlock.telemetry.settings import Export
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


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects: the headers may contain a key, which another server must not see."""

    def redirect_request(self, *_: object) -> None:
        return None


class Collector:
    """A collector, to which one thread sends batches; see also `CollectorReports`.

    Args:
        settings: The collector, and how batches are sent to it.
        noun: The name of the items, in the plural, for the log.
        clock: The monotonic clock, in seconds.

    Attributes:
        shown: The collector's URL, for messages.
    """

    def __init__(
        self, settings: Export, noun: str, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self.shown = urls.display(settings.url)
        self._settings = settings
        self._clock = clock
        self._stopping = threading.Event()
        self._deadline = float("inf")
        self._reports = CollectorReports(noun, self.shown)
        handlers: list[HTTPSHandler | HTTPRedirectHandler] = [_NoRedirects()]
        if settings.url.startswith("https:"):
            context = ssl.create_default_context(cafile=settings.certificate or None)
            if settings.client_certificate:
                context.load_cert_chain(settings.client_certificate, settings.client_key or None)
            handlers.append(HTTPSHandler(context=context))
        self._open = build_opener(*handlers).open

    def stop(self, timeout: float) -> None:
        """Send nothing again from now on, and nothing at all after `timeout` seconds."""
        self._deadline = self._clock() + timeout
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def is_over(self) -> bool:
        """Whether the time of the last requests has passed."""
        return self._clock() >= self._deadline

    def probe(self, body: bytes) -> str:
        """Send a request once; return the problem, or "" if the collector accepts it."""
        return self._post(self._packed(body))[1]

    def send(self, body: bytes, lost: Callable[[], int] = lambda: 0) -> bytes | None:
        """Send a batch, again if the collector asks for that.

        Args:
            body: The request.
            lost: Returns how many items were lost so far, for the log.

        Returns:
            The collector's answer; None if it did not accept the batch.
        """
        body, pause = self._packed(body), FIRST_PAUSE
        for _ in range(MAX_ATTEMPTS):
            answer, problem, wait = self._post(body, pause)
            if not problem:
                self._reports.recovered(lost())
                return answer
            if wait is None or self._stopping.is_set():
                break
            self._reports.failed(problem)
            self._stopping.wait(min(wait, LONGEST_PAUSE))
            pause *= 2
        self._reports.failed(problem)
        return None

    def _packed(self, body: bytes) -> bytes:
        return gzip.compress(body, 1) if self._settings.is_compressed else body

    def _post(self, body: bytes, pause: float = 0.0) -> tuple[bytes, str, float | None]:
        """Send a batch once; `pause` is the usual number of seconds before another attempt.

        Returns:
            The answer; the problem, or "" if the batch was accepted; and the seconds before
            another attempt, or None if another attempt has no use.
        """
        settings = self._settings
        headers = {"Content-Type": "application/json", **settings.headers}
        if settings.is_compressed:
            headers["Content-Encoding"] = "gzip"
        timeout = max(min(settings.timeout, self._deadline - self._clock()), 0.01)
        try:
            request = Request(settings.url, body, headers, method="POST")  # noqa: S310 - http(s)
            with self._open(request, timeout=timeout) as answer:
                return answer.read(MAX_ANSWER), "", None
        except HTTPError as error:
            with error:
                wait = _retry_after(error.headers, pause) if error.code in RETRIED else None
                return b"", f"it answered {error.code}", wait
        except _FAILURES as error:
            reason = getattr(error, "reason", error)
            return b"", getattr(reason, "strerror", None) or type(reason).__name__, None


class CollectorReports:
    """Logs one line when a collector begins to fail, and one when it recovers.

    Args:
        noun: The name of the items that it gets, in the plural.
        shown: The collector's URL.
    """

    def __init__(self, noun: str, shown: str) -> None:
        self._noun = noun
        self._shown = shown
        self._fails = False

    def failed(self, problem: str) -> None:
        """Note that the collector did not accept a batch."""
        if not self._fails:
            _log.warning("%s are not exported to %s: %s", self._noun, self._shown, problem)
        self._fails = True

    def recovered(self, lost: int) -> None:
        """Note that the collector accepted a batch; `lost` is the number of lost items so far."""
        if self._fails:
            rest = f"; {lost} were lost" if lost else ""
            _log.warning("%s are exported to %s again%s", self._noun, self._shown, rest)
        self._fails = False


def _retry_after(headers: Message, otherwise: float) -> float:
    """Return the seconds in the header Retry-After, or `otherwise` if it states none."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 10 else otherwise
