"""Which traces are recorded, and that strangers do not decide it."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

from interlock import Context
from interlock.observing import TraceContext
from interlock.protocol import Request
from interlock.telemetry.sampling import sampler
from interlock.telemetry.settings import Export, TracingSettings
from interlock.telemetry.span import TraceSpan
from interlock.telemetry.tracer import Tracer
from interlock.types import ClientCapabilities
from tests.support.rows import each_row

LOW = "00-4bf92f3577b34da60000000000000001-00f067aa0ba902b7"  # an id that each ratio samples


@each_row(
    ("name", "argument", "root", "sampled", "unsampled"),
    [
        ("", "", True, True, False),
        ("always_on", "", True, True, True),
        ("always_off", "", False, False, False),
        ("parentbased_always_off", "", False, True, False),
        ("traceidratio", "0", False, False, False),
        ("traceidratio", "1", True, True, True),
        ("parentbased_traceidratio", "0", False, True, False),
    ],
)
def test_a_sampler_decides_by_the_parent_only_if_it_is_parent_based(
    name: str, argument: str, root: bool, sampled: bool, unsampled: bool
):
    decide = sampler(name, argument)

    assert [decide(each, 2**127 + 5) for each in (None, True, False)] == [root, sampled, unsampled]


def test_a_ratio_samples_its_share_of_traces():
    draw, decide = Random(1), sampler("traceidratio", "0.02")

    found = sum(decide(None, draw.getrandbits(128)) for _ in range(20_000))

    assert 300 < found < 500


async def served(trace: str, *, name: str, argument: str = "", trusted: bool) -> list[TraceSpan]:
    """Serve 100 requests of a client with this trace; return the exported spans."""

    async def answer(request: Request, context: Context) -> bytes:
        return b"{}"

    spans: list[TraceSpan] = []
    settings = TracingSettings(Export("http://x"), sampler(name, argument))
    tracer = Tracer(settings, spans.append)
    server: Any = SimpleNamespace(answer=answer, trusts_trace=lambda _: trusted)
    for id in range(100):
        context: Context[Any] = Context(
            revision="2026-07-28",
            request_id=id,
            link=object(),  # type: ignore[arg-type]
            loop=asyncio.get_running_loop(),
            client_capabilities=ClientCapabilities(),
            trace=TraceContext(trace),
        )
        await tracer.serve(server, Request(id, "tools/list", b"{}"), context)  # type: ignore[arg-type]
    return spans


@each_row(
    ("trace", "name", "argument", "least", "most"),
    [
        (f"{LOW}-01", "traceidratio", "0.02", 0, 15),  # ids that the ratio takes
        (f"{LOW}-01", "parentbased_traceidratio", "0.02", 0, 15),
        (f"{LOW}-01", "parentbased_always_off", "", 0, 0),  # a flag that floods
        (f"{LOW}-00", "parentbased_always_on", "", 100, 100),  # a flag that hides
        (f"{LOW}-00", "always_on", "", 100, 100),
    ],
)
async def test_a_stranger_neither_floods_nor_hides_by_its_trace(
    trace: str, name: str, argument: str, least: int, most: int
):
    spans = await served(trace, name=name, argument=argument, trusted=False)

    assert least <= len(spans) <= most
    assert all(each.trace != LOW[3:35] and not each.parent for each in spans)
    assert all(each.links == (TraceContext(trace),) for each in spans)


@each_row(("flag", "count"), [("01", 100), ("03", 100), ("00", 0), ("02", 0)])
async def test_a_trusted_client_decides_for_its_trace(flag: str, count: int):
    spans = await served(f"{LOW}-{flag}", name="parentbased_always_off", trusted=True)

    assert len(spans) == count
    assert all((each.trace, each.parent) == (LOW[3:35], LOW[36:52]) for each in spans)
    assert all(each.links == () and each.is_remote_parent for each in spans)
