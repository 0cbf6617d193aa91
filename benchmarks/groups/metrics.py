"""What metrics cost: for each call and request, for a snapshot, and for its export."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.groups.gateway import beyond
from benchmarks.groups.layers import OUTCOME, of, of_calls
from benchmarks.harness import BARE, US, Effort, Row, contest
from interlock.calls import Call, Outcome
from interlock.calls.call import Timing
from interlock.layers.exposition import text_of
from interlock.layers.metrics import MAX_SETS, Metrics
from interlock.telemetry import encoding

TITLE = "Metrics"
LIMIT = 3e-6  # for an operation
PAGE_LIMIT = 20e-3  # for a page with 500 sets of labels in each of two histograms
LABELS = ("tools/list", "", "", "2026-07-28", "tcp")


async def timed(call: Call) -> Outcome:
    """Answer as a server that takes 12 ms."""
    if call.timing is None:
        call.timing = Timing()
    call.timing.at_server = 0.012
    return OUTCOME


def rows(effort: Effort) -> Iterator[Row]:
    metrics = Metrics(transport=lambda _: "tcp")
    samples = {US: of_calls(metrics.calls(timed), effort), BARE: of_calls(timed, effort)}
    taken = contest(samples, effort.rounds)
    added = beyond(taken[BARE], taken[US])
    yield Row("added to a call: six counts and histograms", "s", {US: added}, {US: LIMIT})
    other = contest({US: of(lambda: metrics.note_served(LABELS, 0.001), effort)}, effort.rounds)
    yield Row("a request that is not a call", "s", other, {US: LIMIT})
    full = Metrics(transport=lambda _: "tcp")
    for number in range(MAX_SETS):
        full.note_served(("tools/call", f"s:t{number}", "", "2026-07-28", "tcp"), 0.012)
        full.note_sent(("tools/call", f"s:t{number}", "", "2026-07-28", "s"), 0.01)
    families = full.families()

    def export() -> bytes:
        return encoding.metrics_request(families, {"service.name": "bench"}, 1, 2)

    for what, work, limit in (
        ("a snapshot, in the event loop", full.families, None),
        ("a page of it, in a thread", lambda: text_of(families), PAGE_LIMIT),
        ("an export of it in JSON, in a thread", export, PAGE_LIMIT),
    ):
        found = contest({US: of(work, effort, at_once=10)}, effort.rounds)
        title = f"{what}: 2 x {MAX_SETS} sets of labels"
        yield Row(title, "s", found, {US: limit} if limit else {})
