"""A gateway's metrics, in Prometheus' text format.

Labels come from the configuration, the servers and the code, never from callers. Servers may list
any number of tools, so the sets of labels that name a tool are limited.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import accumulate
from time import monotonic

from interlock.calls import Call, CallHandler, Entry, Outcome
from interlock.calls.call import Timing
from interlock.config.gateway import OWN
from interlock.errors import AuditUnavailable, CallRefused, InvalidArguments, RequestTimeout
from interlock.histogram import Histogram
from interlock.layers.error_types import error_type
from interlock.layers.exposition import Family, Gauge, Samples, by_label, family, text_of
from interlock.layers.model_metrics import ModelMetrics

CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 120)
LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
LAG_EVERY = 0.5  # seconds between two measurements
LIMITS = ("rate_limited", "overloaded", "queue_timeout")  # the codes of calls over a limit
OVERHEAD_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 30)

# The bounds and names that the OpenTelemetry conventions for MCP prescribe.
OPERATION_BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
OPERATION_LABELS = (
    "mcp_method_name",
    "gen_ai_tool_name",
    "error_type",
    "mcp_protocol_version",
    "network_transport",
)
MAX_SETS = 500  # sets of labels of one metric; further operations are counted under `OTHER`
OTHER = "_OTHER"

Operation = tuple[str, str, str, str, str]  # the values of `OPERATION_LABELS`


class TimedOperations:
    """The durations of MCP operations, by the labels of the OpenTelemetry conventions.

    Attributes:
        seen: Histograms by a key that is cheap to make; see `begin`.
    """

    def __init__(self) -> None:
        self.seen: dict[Operation, Histogram] = {}
        self._by_labels: dict[Operation, Histogram] = {}

    def begin(self, key: Operation, transport: str) -> Histogram:
        """Return the histogram for a key that is not in `seen`.

        Args:
            key: The labels, with any text that decides about the transport as the last one.
        """
        labels = (*key[:4], transport)
        if labels not in self._by_labels and len(self._by_labels) >= MAX_SETS:
            labels = (key[0], OTHER, OTHER if key[2] else "", OTHER, transport)
        histogram = self._by_labels.setdefault(labels, Histogram(OPERATION_BOUNDS))
        if len(self.seen) < 2 * MAX_SETS:
            self.seen[key] = histogram
        return histogram

    def note(self, key: Operation, transport: str, seconds: float) -> None:
        """Count an operation; see `begin` for the arguments."""
        (self.seen.get(key) or self.begin(key, transport)).note(seconds)

    @property
    def samples(self) -> Samples:
        return {
            tuple(
                (name, value) for name, value in zip(OPERATION_LABELS, key, strict=True) if value
            ): (histogram)
            for key, histogram in self._by_labels.items()
        }


class Metrics:
    """Counts and times calls, and counts refusals. `calls` is the outermost layer.

    Args:
        on_failure: Called with each call that raises an error, and the error.
        gauges: Returns further metrics by name, each with a help text and its samples.
        transport: Returns the transport to a server, "tcp" or "pipe"; "" in this process.

    Attributes:
        refusals: The number of refusals by reason.
        refusals_of: The number of refusals by reason, for each API key's id.
        loop_lag: How late the event loop called a timer.
        models: The answers of models in the chat.
    """

    def __init__(
        self,
        on_failure: Callable[[Call, BaseException], None] = lambda _, __: None,
        gauges: Callable[[], Mapping[str, Gauge]] = dict,
        transport: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._on_failure = on_failure
        self.refusals: Counter[str] = Counter()
        self.refusals_of: dict[str, Counter[str]] = {}
        self.loop_lag = Histogram(LAG_BOUNDS)
        self.models = ModelMetrics()
        self._gauges = gauges
        self._transport = transport
        self._served, self._sent = TimedOperations(), TimedOperations()
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
        served, sent = self._served.seen, self._sent.seen

        async def counted(call: Call) -> Outcome:
            server, began = call.entry.server, monotonic()
            timing = call.timing
            if timing is None:
                timing = call.timing = Timing()
            self._in_flight[server] += 1
            ended, failed = "ok", ""
            try:
                outcome = await handle(call)
                if outcome.is_error:
                    ended = failed = "tool_error"
            except BaseException as error:
                ended, failed = self._ending(call, error)
                self._on_failure(call, error)
                raise
            finally:
                self._in_flight[server] -= 1
                self._calls[server, ended] += 1
                seconds = monotonic() - began
                # Inlined: each function would make every call slower.
                entry, caller = call.entry, call.caller
                tool = entry.address if isinstance(entry, Entry) else ""
                method = "tools/call" if tool else call.method
                if caller.surface == "mcp":
                    transport = "tcp" if caller.address else "pipe"
                    labels = (method, tool, failed, caller.revision, transport)
                    operation = served.get(labels) or self._served.begin(labels, transport)
                    operation.counts[bisect_left(OPERATION_BOUNDS, seconds)] += 1
                    operation.sum += seconds
                if timing.at_server is not None:
                    if server != OWN:  # its tools send no request
                        labels = (method, tool, failed, call.revision, server)
                        operation = sent.get(labels) or self._sent.begin(
                            labels, self._transport(server)
                        )
                        operation.counts[bisect_left(OPERATION_BOUNDS, timing.at_server)] += 1
                        operation.sum += timing.at_server
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

    def note_served(self, labels: Operation, seconds: float) -> None:
        """Count a request of a client that no layer of calls has counted."""
        self._served.note(labels, labels[4], seconds)

    def note_sent(self, labels: Operation, seconds: float) -> None:
        """Count a request to a server other than a call; the last label is the server's name."""
        self._sent.note(labels, self._transport(labels[4]), seconds)

    async def measure_lag(self) -> None:
        """Measure how late the event loop calls timers, until cancelled."""
        while True:
            due = monotonic() + LAG_EVERY
            await asyncio.sleep(LAG_EVERY)
            self.loop_lag.note(max(0.0, monotonic() - due))

    def _ending(self, call: Call, error: BaseException) -> tuple[str, str]:
        """Return how a call ended, and the type of its error."""
        reason = reason_of_refusal(error)
        if reason is not None:
            principal = call.caller.principal
            self.note_refusal(reason, principal.key_id if principal is not None else "")
            return "refused", reason
        if isinstance(error, asyncio.CancelledError):
            return "cancelled", "cancelled"
        if isinstance(error, RequestTimeout):
            return "timeout", "timeout"
        return "error", error_type(error)

    def _histograms(self, server: str) -> tuple[Histogram, Histogram]:
        made = self._seconds[server] = Histogram(CALL_BOUNDS), Histogram(OVERHEAD_BOUNDS)
        return made

    # The text format

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return text_of(self.families())

    def families(self) -> list[Family]:
        """Return a snapshot of all metrics, which any thread can turn into text."""
        calls = {
            (("server", server), ("outcome", outcome)): float(count)
            for (server, outcome), count in self._calls.items()
        }
        seconds = {(("server", each),): whole for each, (whole, _) in self._seconds.items()}
        overhead = {(("server", each),): own for each, (_, own) in self._seconds.items()}
        limited = {each: float(self.refusals[each]) for each in LIMITS}
        own: dict[str, Gauge] = {
            "interlock_calls_total": ("Calls that have ended.", calls),
            "interlock_refusals_total": ("Refused requests.", by_label("reason", self.refusals)),
            "interlock_limited_total": ("Calls over a limit.", by_label("limit", limited)),
            "interlock_in_flight": ("Calls under way.", by_label("server", self._in_flight)),
            "interlock_call_seconds": ("Time of a call.", seconds),
            "interlock_overhead_seconds": ("Time of a call in the gateway.", overhead),
            "mcp_server_operation_duration_seconds": (
                "Time of a request of a client.",
                self._served.samples,
            ),
            "mcp_client_operation_duration_seconds": (
                "Time of a request to a server.",
                self._sent.samples,
            ),
            "interlock_loop_lag_seconds": (
                "How late the event loop called a timer.",
                {(): self.loop_lag},
            ),
        }
        every = own | self.models.gauges() | dict(self._gauges())
        return [family(name, help, samples) for name, (help, samples) in every.items()]


def error_of(error: BaseException) -> str:
    """Return the label `error_type` of a request that failed."""
    return reason_of_refusal(error) or error_type(error)


def reason_of_refusal(error: BaseException) -> str | None:
    """Return the reason if an error means that a call was refused, else None."""
    if isinstance(error, CallRefused):
        return error.reason
    if isinstance(error, AuditUnavailable):
        return "audit_unavailable"
    return "arguments_invalid" if isinstance(error, InvalidArguments) else None
