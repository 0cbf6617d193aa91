"""The spans of what a test does in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from interlock import observing
from interlock.telemetry.sampling import sampler
from interlock.telemetry.settings import Export, TracingSettings
from interlock.telemetry.span import TraceSpan, current
from interlock.telemetry.tracer import Tracer


@contextmanager
def recorded_spans(*, propagates: bool = True) -> Iterator[list[TraceSpan]]:
    """Record every span; telemetry is off again at the end."""
    found: list[TraceSpan] = []
    settings = TracingSettings(
        Export("http://x"), sampler("", ""), max_text=40, propagates=propagates
    )
    before, observing.observer = observing.observer, Tracer(settings, found.append)
    try:
        yield found
    finally:
        observing.observer = before
    assert current.get() is None


def tree(spans: Sequence[TraceSpan]) -> set[tuple[int, str, str]]:
    """Return the kind, the name and the parent's name of each span."""
    by_id = {each.id: each.name for each in spans}
    return {(each.kind, each.name, by_id.get(each.parent, "")) for each in spans}


def named(spans: Sequence[TraceSpan], name: str) -> TraceSpan:
    """Return the only span with a name."""
    (found,) = (each for each in spans if each.name == name)
    return found
