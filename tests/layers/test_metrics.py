"""What a gateway counts, as Prometheus text."""

from __future__ import annotations

import pytest

from interlock.calls import Call, Outcome
from interlock.errors import CallRefused, RequestTimeout, UnknownTool
from interlock.histogram import Histogram
from interlock.layers.exposition import by_label, family, text_of
from interlock.layers.metrics import MAX_SETS, Metrics
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

    assert text_of([family("t", "Time.", {(): histogram})]).splitlines()[2:] == [
        't_bucket{le="0.1"} 1',
        't_bucket{le="1"} 2',
        't_bucket{le="+Inf"} 3',
        "t_sum 2.600000",
        "t_count 3",
    ]


def test_a_label_cannot_end_its_quotes_or_line_or_control_a_terminal():
    names = {'a"\n\\': 1, "\x1b[2J\u202e": 2}
    metrics = Metrics(gauges=lambda: {"g": ("Help.", by_label("name", names))})

    lines = metrics.text().splitlines()
    assert 'g{name="a\\"\\n\\\\"} 1' in lines
    assert 'g{name="\\\\u001b[2J\\\\u202e"} 2' in lines
    assert metrics.own_share(95) is None


async def test_operations_are_timed_by_tool_error_and_revision_in_a_bounded_number_of_sets():
    metrics = Metrics(transport=lambda _: "pipe")
    await count(metrics, b'{"content":[]}', b'{"content":[],"isError":true}')
    lines = metrics.text().splitlines()
    tool = 'mcp_method_name="tools/call",gen_ai_tool_name="crm:refund"'
    for side in ("server", "client"):
        start = f"mcp_{side}_operation_duration_seconds_count{{{tool},"
        assert f'{start}network_transport="pipe"}} 1' in lines
        assert f'{start}error_type="tool_error",network_transport="pipe"}} 1' in lines

    handle = metrics.calls(Upstream().handle)
    for number in range(MAX_SETS + 100):
        await handle(call_of(tool=f"made_{number}"))
    counts = [each for each in metrics.text().splitlines() if "server_operation" in each]
    sets = [each for each in counts if "_count{" in each]
    assert len(sets) == MAX_SETS + 1
    assert sum(float(each.rpartition(" ")[2]) for each in sets) == MAX_SETS + 102


def test_names_that_callers_make_up_are_no_labels():
    metrics = Metrics()
    for number in range(1_200):
        metrics.note_refusal("unknown_tool", f"k{number}")

    assert len([each for each in metrics.text().splitlines() if "refusals_total{" in each]) == 1
