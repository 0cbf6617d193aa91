"""A gateway's metrics, in Prometheus' text format.

Labels come from the configuration and the code, never from callers, so their number is bounded.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from operator import add
from time import monotonic

from interlock.calls import Call, CallHandler, Outcome
from interlock.calls.call import Timing
from interlock.errors import (
    AuditUnavailable,
    CallRefused,
    InvalidArguments,
    RequestTimeout,
)

CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
OVERHEAD_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 30)

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[Labels, float]
Gauge = tuple[str, Samples]  # a help text, and the samples


class Histogram:
    """A histogram of durations in seconds.

    Args:
        bounds: The buckets' upper bounds in seconds, ascending.

    Attributes:
        counts: The number of values in each bucket; the last bucket has no upper bound.
        sum: The sum of all values.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add_to(self, counts: list[int]) -> None:
        """Add the number of values in each bucket to `counts`."""
        counts[:] = map(add, counts, self.counts)

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        """Yield the histogram's lines in the text format."""
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self.counts, strict=True):
            total += count
            yield f"{name}_bucket{_labels((*labels, ('le', bound)))} {total}"
        yield f"{name}_sum{_labels(labels)} {self.sum:.6f}"
        yield f"{name}_count{_labels(labels)} {total}"


class Metrics:
    """Counts and times calls, and counts refusals. `calls` is the outermost layer.

    Args:
        on_failure: Called with each call that raises an error, and the error.
        gauges: Returns further metrics by name, each with a help text and its samples.

    Attributes:
        refusals: The number of refusals by reason.
        refusals_of: The number of refusals by reason, for each API key's id.
    """

    def __init__(
        self,
        on_failure: Callable[[Call, BaseException], None] = lambda _, __: None,
        gauges: Callable[[], Mapping[str, Gauge]] = dict,
    ) -> None:
        self._on_failure = on_failure
        self.refusals: Counter[str] = Counter()
        self.refusals_of: dict[str, Counter[str]] = {}
        self._gauges = gauges
        self._calls: Counter[tuple[str, str]] = Counter()  # by server and outcome
        self._in_flight: Counter[str] = Counter()
        # By server: the duration of calls, and the time that the gateway itself took.
        self._seconds: dict[str, tuple[Histogram, Histogram]] = {}

    def in_flight(self, server: str) -> int:
        return self._in_flight[server]

    def own_share(self, percent: float) -> float | None:
        """Return a percentile of the time that the gateway itself adds to a call, in milliseconds.

        The value is a bucket's upper bound, over all calls since the start; None without calls.
        """
        counts = [0] * (len(OVERHEAD_BOUNDS) + 1)
        for _, overhead in self._seconds.values():
            overhead.add_to(counts)
        rank = percent / 100 * sum(counts)
        for bound, total in zip(OVERHEAD_BOUNDS, accumulate(counts), strict=False):
            if total and total >= rank:
                return bound * 1_000
        return OVERHEAD_BOUNDS[-1] * 1_000 if sum(counts) else None

    # Layers

    def calls(self, handle: CallHandler) -> CallHandler:
        """Return a layer that counts calls by outcome, and measures their duration."""

        async def counted(call: Call) -> Outcome:
            server, began = call.entry.server, monotonic()
            timing = call.timing
            if timing is None:
                timing = call.timing = Timing()
            self._in_flight[server] += 1
            ended = "error"
            try:
                outcome = await handle(call)
                ended = "tool_error" if outcome.is_error else "ok"
            except BaseException as error:
                ended = self._ending(call, error)
                self._on_failure(call, error)
                raise
            finally:
                self._in_flight[server] -= 1
                self._calls[server, ended] += 1
                if timing.at_server is not None:
                    seconds = monotonic() - began
                    own = seconds - timing.at_server
                    whole, overhead = self._seconds.get(server) or self._histograms(server)
                    whole.counts[bisect_left(CALL_BOUNDS, seconds)] += 1
                    whole.sum += seconds
                    overhead.counts[bisect_left(OVERHEAD_BOUNDS, own)] += 1
                    overhead.sum += own
            return outcome

        return counted

    def note_refusal(self, reason: str, key: str = "") -> None:
        """Count a refusal.

        Args:
            reason: The code of the refusal.
            key: The id of the caller's API key; "" if the caller has no key.
        """
        self.refusals[reason] += 1
        if key:
            self.refusals_of.setdefault(key, Counter())[reason] += 1

    def _ending(self, call: Call, error: BaseException) -> str:
        reason = reason_of_refusal(error)
        if reason is not None:
            principal = call.caller.principal
            self.note_refusal(reason, principal.key_id if principal is not None else "")
            return "refused"
        if isinstance(error, asyncio.CancelledError):
            return "cancelled"
        return "timeout" if isinstance(error, RequestTimeout) else "error"

    def _histograms(self, server: str) -> tuple[Histogram, Histogram]:
        made = self._seconds[server] = Histogram(CALL_BOUNDS), Histogram(OVERHEAD_BOUNDS)
        return made

    # The text format

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        calls: Samples = {
            (("server", server), ("outcome", outcome)): float(count)
            for (server, outcome), count in self._calls.items()
        }
        refusals: Samples = {(("reason", reason),): float(n) for reason, n in self.refusals.items()}
        in_flight: Samples = {
            (("server", server),): float(n) for server, n in self._in_flight.items()
        }
        seconds = {server: whole for server, (whole, _) in self._seconds.items()}
        overhead = {server: own for server, (_, own) in self._seconds.items()}
        lines = [
            *_metric("interlock_calls_total", "counter", "Calls that have ended.", calls),
            *_metric("interlock_refusals_total", "counter", "Refused requests.", refusals),
            *_metric("interlock_in_flight", "gauge", "Calls under way.", in_flight),
            *_histograms("interlock_call_seconds", "Time of a call.", seconds),
            *_histograms("interlock_overhead_seconds", "Time of a call in the gateway.", overhead),
        ]
        for name, (help, samples) in self._gauges().items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += _metric(name, kind, help, samples)
        return "\n".join(lines) + "\n"


def reason_of_refusal(error: BaseException) -> str | None:
    """Return the reason if an error means that a call was refused, else None."""
    if isinstance(error, CallRefused):
        return error.reason
    if isinstance(error, AuditUnavailable):
        return "audit_unavailable"
    return "arguments_invalid" if isinstance(error, InvalidArguments) else None


def by_label(label: str, values: Mapping[str, float]) -> Samples:
    """Return a sample for each value, with its key as the only label."""
    return {((label, key),): value for key, value in values.items()}


def _metric(name: str, kind: str, help: str, samples: Samples) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples.items():
        yield f"{name}{_labels(labels)} {value:g}"


def _histograms(name: str, help: str, found: Mapping[str, Histogram]) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} histogram"
    for server, histogram in found.items():
        yield from histogram.lines(name, (("server", server),))


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
