"""The thread that sends spans to a collector."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.observing import TraceContext
from interlock.telemetry import names
from interlock.telemetry.exporter import Exporter
from interlock.telemetry.settings import Export
from interlock.telemetry.span import SERVER, RequestFacts, TraceSpan
from interlock.text.quoting import replace_surrogates
from tests.support.otlp_collector import Collector, collecting
from tests.support.rows import each_row


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def span(name: str = "tools/list") -> TraceSpan:
    made = TraceSpan("4b" * 16, "", "", True, SERVER, name)
    made.end = made.start
    return made


def exporter(url: str, **options: Any) -> Exporter:
    settings = Export(f"{url}/v1/traces", **{"delay": 0.01, "timeout": 5.0, **options})
    return Exporter(settings, {"service.name": "tests"})


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "interlock.telemetry"]


@each_row("is_compressed", [False, True])
def test_spans_arrive_in_batches_and_the_last_ones_at_the_end(is_compressed: bool):
    with collecting() as collector:
        sending = exporter(collector.url, batch=2, delay=60.0, is_compressed=is_compressed)
        for number in range(5):
            sending.add(span(f"s{number}"))
        sending.close(5.0)

    assert sorted(collector.names) == [f"s{number}" for number in range(5)]
    assert len(collector.requests) == 3
    assert +sending.counts == {"exported": 5}


def test_a_name_with_half_a_character_does_not_end_the_export(collector: Collector):
    sending = exporter(collector.url, batch=1)
    half = span("execute_tool \ud800x")
    half.own = {"gen_ai.tool.name": "\ud800x"}
    sending.add(half)
    sending.add(span("later"))
    sending.close(5.0)

    assert sorted(collector.names) == ["execute_tool \ufffdx", "later"]


@each_row(
    "of_request", [("tools/call", 'a"\\\n\u00e9\ud800', "2026-07-28", True, True, ("h", 80)), None]
)
def test_an_exported_span_has_its_attributes_whatever_they_contain(
    of_request: RequestFacts | None,
):
    odd = span('tools/call a"b')
    odd.own = {"x": '"', "y": 7}
    odd.request_id, odd.address, odd.call_id = 'i"\\', 'fe80::1%"', 'c"'
    odd.of_request, odd.of_call, odd.error = of_request, ("s", "read", ""), 'e"'
    odd.links, odd.trace_state = (TraceContext(f"00-{'1' * 32}-{'2' * 16}-03", 'v="'),), 'v="'
    with collecting() as collector:
        sending = exporter(collector.url, batch=2)
        for _ in range(3):  # the later ones are made of what was encoded for the first
            sending.add(odd)
        sending.close(5.0)

    expected = replace_surrogates({**odd.attributes, names.ERROR: odd.error})
    for found in collector.spans:
        assert found["attributes"] == expected
        assert (found["traceState"], found["status"]) == ('v="', {"code": 2})
        assert found["links"][0]["traceState"] == 'v="'
        assert found["links"][0]["flags"] == 0x301
    assert len(collector.spans) == 3


@each_row(
    ("status", "attempts"), [(429, 2), (502, 2), (503, 2), (504, 2), (400, 1), (500, 1), (302, 1)]
)
def test_a_batch_is_sent_again_only_if_the_status_allows_it(status: int, attempts: int):
    with collecting() as collector:
        location = f"{collector.url}/elsewhere"
        collector.script = [(status, {"retry-after": "0", "location": location})]
        sending = exporter(collector.url)
        sending.add(span())
        collector.wait_for(attempts)
        sending.close(5.0)

    assert len(collector.requests) == attempts
    assert len(collector.spans) == attempts - 1


def test_the_log_has_one_line_when_a_collector_fails_and_one_when_it_recovers(
    collector: Collector, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "interlock.telemetry")
    collector.script = [(500, {}), (500, {})]
    sending = exporter(collector.url, headers={"x-key": "canary"})
    for number in range(1, 4):
        sending.add(span())
        collector.wait_for(number)
    sending.close(5.0)

    shown = f"{collector.url}/v1/traces"
    assert lines(caplog) == [
        f"spans are not exported to {shown}: it answered 500",
        f"spans are exported to {shown} again; 2 were lost",
    ]
    assert sending.counts == {"failed": 2, "exported": 1}


def test_a_collector_that_is_away_costs_spans_but_no_memory(
    caplog: pytest.LogCaptureFixture,
):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    sending = exporter(url, queue=10, delay=60.0)
    for _ in range(100):
        sending.add(span())
    sending.close(60.0)

    assert sending.counts == {"dropped": 90, "failed": 10}
    assert len(lines(caplog)) == 1


def test_a_collector_that_does_not_answer_delays_the_end_by_the_timeout_at_most():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sending = exporter(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=60.0)
        sending.add(span())
        connection, _ = silent.accept()
        with connection:
            sending.close(0.05)

            assert sending.counts == {}  # the request goes on in its thread
