"""What the layers around a call cost by themselves: limits, and records that cost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import monotonic, perf_counter, process_time

from msgspec import Raw

from benchmarks.harness import BARE, US, Effort, Row, Sample, contest
from interlock.auth import Principal
from interlock.calls import Call, Caller, CallHandler, Entry, Outcome
from interlock.config.gateway import Audit, KeyLimits, Limits, Rate
from interlock.layers.audit import AuditTrail
from interlock.layers.limits import ROUNDING, Buckets, Limiter
from interlock.store import AuditRecord
from interlock.types import Tool

TITLE = "Layers around a call"
FAST = Rate(10**7, 1)  # never exceeded
CALL = Call(
    Entry("crm", Tool("refund", {"type": "object"}), "crm:refund", "crm__refund", b"{}"),
    {"order": 4711, "amount": 30, "note": "for the broken lamp"},
    Caller(Principal("user:anna", key_id="k_7d2f"), surface="mcp"),
)
OUTCOME = Outcome(Raw(b'{"content":[]}'))


class NoDisk:
    """In place of an audit writer: every record is durable at once."""

    dropped = 0

    def queue(self, record: AuditRecord) -> asyncio.Future[None]:
        del record
        written = asyncio.get_running_loop().create_future()
        written.set_result(None)
        return written

    def append_soon(self, record: AuditRecord) -> None:
        pass


async def answer(call: Call) -> Outcome:
    del call
    return OUTCOME


def rows(effort: Effort) -> Iterator[Row]:
    bucket = Buckets(FAST, None, "", "")

    def decide() -> None:
        now = monotonic()
        if bucket.wait("k", now) <= ROUNDING:
            bucket.spend("k", now)

    decided = contest({US: of(decide, effort)}, effort.rounds)
    yield Row("a bucket's decision", "s", decided, {US: 1e-6})
    key = KeyLimits(rate=FAST, per_day=10**9)
    limiter = Limiter(Limits(per_key=key, tools={"crm:*": FAST}), {"crm": FAST})
    trail = AuditTrail(NoDisk(), b"k" * 32, Audit())
    for what, handle in (
        ("four limits", limiter.around(answer)),
        ("intent and outcome, not written", trail.refusals(trail.calls(answer))),
    ):
        samples = {US: of_calls(handle, effort), BARE: of_calls(answer, effort)}
        yield Row(what, "s", contest(samples, effort.rounds))


def of(work: Callable[[], object], effort: Effort, *, at_once: int = 1_000) -> Sample:
    """Return the processor time of one run, in seconds; the clock is read after `at_once` runs."""

    def sample() -> float:
        count, ends, started = 0, perf_counter() + effort.seconds, process_time()
        while perf_counter() < ends:
            for _ in range(at_once):
                work()
            count += at_once
        return (process_time() - started) / count

    return sample


def of_calls(handle: CallHandler, effort: Effort) -> Sample:
    """Return the processor time of one call, in seconds."""

    async def run() -> float:
        count, ends, started = 0, perf_counter() + effort.seconds, process_time()
        while perf_counter() < ends:
            for _ in range(1_000):
                await handle(CALL)
            count += 1_000
            await asyncio.sleep(0)
        return (process_time() - started) / count

    return lambda: asyncio.run(run())
