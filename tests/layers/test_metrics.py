"""What a gateway counts, as Prometheus text."""

from __future__ import annotations

import pytest

from interlock.calls import Call, Outcome
from interlock.errors import CallRefused, RequestTimeout, UnknownTool
from interlock.layers.metrics import Histogram, Metrics, by_label
from tests.layers.support import Upstream, call_of


async def count(metrics: Metrics, *answers: bytes | BaseException) -> None:
    upstream = Upstream(*answers)

    async def timed(call: Call) -> Outcome:
        assert call.timing is not None
        call.timing.at_server = 0.0
        return await upstream.handle(call)

    handle = metrics.calls(timed)
    for answer in answers:
        if isinstance(answer, BaseException):
            with pytest.raises(type(answer)):
                await handle(call_of())
        else:
            await handle(call_of())


async def test_calls_are_counted_by_server_and_outcome():
    metrics = Metrics()
    await count(
        metrics,
        b'{"content":[]}',
        b'{"content":[],"isError":true}',
        RequestTimeout("no answer"),
        UnknownTool("gone"),
        CallRefused("no rule", "no_rule"),
    )

    lines = metrics.text().splitlines()
    for outcome in ("ok", "tool_error", "timeout", "error", "refused"):
        assert f'interlock_calls_total{{server="crm",outcome="{outcome}"}} 1' in lines
    assert 'interlock_refusals_total{reason="no_rule"} 1' in lines
    assert 'interlock_in_flight{server="crm"} 0' in lines
    assert metrics.own_share(95) is not None


def test_buckets_of_a_histogram_add_up():
    histogram = Histogram((0.1, 1))
    histogram.counts[:] = [1, 1, 1]
    histogram.sum = 2.6

    assert list(histogram.lines("t", ())) == [
        't_bucket{le="0.1"} 1',
        't_bucket{le="1"} 2',
        't_bucket{le="+Inf"} 3',
        "t_sum 2.600000",
        "t_count 3",
    ]


def test_a_label_cannot_end_its_quotes_or_line():
    metrics = Metrics(gauges=lambda: {"g": ("Help.", by_label("name", {'a"\n\\': 1}))})

    assert 'g{name="a\\"\\n\\\\"} 1' in metrics.text().splitlines()
    assert metrics.own_share(95) is None
