"""Spans and metrics as requests of OTLP in JSON.

Specification: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding. Ids are
hexadecimal, enumerations are numbers, 64-bit integers are texts, and members are in lowerCamelCase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from interlock import __version__
from interlock.layers.exposition import COUNTER, Family, Labels
from interlock.observing import TraceContext
from interlock.protocol.envelope import encode_lossy
from interlock.telemetry import names
from interlock.telemetry.span import SharedAttributes, SpanEvent, TraceSpan, Value

_encode = msgspec.json.Encoder().encode
_REMOTE = 0x300  # in `flags`: whether the parent is remote is known, and it is
_LOCAL = 0x100
_SCOPE = {"name": "interlock", "version": __version__}
_FAILED = {"code": 2}
_CUMULATIVE = {"aggregationTemporality": 2}


class _Span(Struct, rename="camel", omit_defaults=True, gc=False):
    trace_id: str
    span_id: str
    flags: int
    kind: int
    name: str
    start_time_unix_nano: str
    end_time_unix_nano: str
    attributes: list[dict[str, Any] | Raw]
    parent_span_id: str = ""
    trace_state: str = ""
    links: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    status: dict[str, int] | None = None


def head(resource: Mapping[str, Value]) -> bytes:
    """Return the beginning of all requests that export spans of one resource."""
    attributes, scope = encode_lossy(_attributes(resource)), _encode(_SCOPE)
    return (
        b'{"resourceSpans":[{"resource":{"attributes":%b},"scopeSpans":[{"scope":%b,"spans":['
    ) % (attributes, scope)


def request(head: bytes, spans: Iterable[bytes]) -> bytes:
    """Return the body of a request, given the results of `head` and `span`."""
    return b"%b%b]}]}]}" % (head, b",".join(spans))


def span(span: TraceSpan) -> bytes:
    """Encode a span that has ended."""
    attributes: list[dict[str, Any] | Raw] = _attributes(span.own)
    for shared in (span.of_request, span.of_call):
        if shared is not None:
            attributes += shared.encoded or _encode_shared(shared)
    found = _Span(
        span.trace,
        span.id,
        1 | (_REMOTE if span.is_remote_parent else _LOCAL),
        span.kind,
        span.name,
        str(span.start),
        str(span.end),
        attributes,
        span.parent,
        span.trace_state,
    )
    if span.links:
        found.links = [_link(each) for each in span.links]
    if span.events:
        found.events = [_event(each) for each in span.events]
    if span.error:
        attributes.append(_attribute(names.ERROR, span.error))
        found.status = _FAILED
    try:
        return _encode(found)
    except UnicodeEncodeError:  # a lone surrogate, such as in the name of a tool
        return encode_lossy(found)


def _encode_shared(attributes: SharedAttributes) -> tuple[Raw, ...]:
    """Encode attributes that many spans have, for all of them."""
    attributes.encoded = tuple(Raw(encode_lossy(each)) for each in _attributes(attributes.values))
    return attributes.encoded


def _event(event: SpanEvent) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event.at),
        "name": event.name,
        "attributes": _attributes(event.attributes),
    }


def _link(linked: TraceContext) -> dict[str, Any]:
    _, trace, span, flags, *_ = linked.parent.split("-")
    found = {"traceId": trace, "spanId": span, "flags": int(flags, 16) & 1 | _REMOTE}
    return {**found, "traceState": linked.state} if linked.state else found


# Metrics


def metrics_request(
    families: Iterable[Family], resource: Mapping[str, Value], start: int, end: int
) -> bytes:
    """Return the body of a request that exports metrics of one resource.

    Args:
        families: The metrics, with the names of Prometheus' format.
        resource: The attributes of this process.
        start: Since when they are counted, in nanoseconds since 1970.
        end: When they were read.
    """
    times = {"startTimeUnixNano": str(start), "timeUnixNano": str(end)}
    metrics = [_metric(each, times) for each in families if each.values or each.histograms]
    of_resource = {
        "resource": {"attributes": _attributes(resource)},
        "scopeMetrics": [{"scope": _SCOPE, "metrics": metrics}],
    }
    return _encode({"resourceMetrics": [of_resource]})


def _metric(family: Family, times: dict[str, str]) -> dict[str, Any]:
    name, unit = names.metric(family.name)
    found: dict[str, Any] = {"name": name, "description": family.help, "unit": unit}
    if family.histograms:
        points = [_distribution(*each, times) for each in family.histograms]
        return {**found, "histogram": {"dataPoints": points, **_CUMULATIVE}}
    values = [
        {"attributes": _labels(labels), "asDouble": value, **times}
        for labels, value in family.values
    ]
    if family.name.endswith(COUNTER):
        return {**found, "sum": {"dataPoints": values, "isMonotonic": True, **_CUMULATIVE}}
    for each in values:  # a gauge has no start
        del each["startTimeUnixNano"]
    return {**found, "gauge": {"dataPoints": values}}


def _distribution(
    labels: Labels,
    bounds: tuple[float, ...],
    counts: tuple[int, ...],
    total: float,
    times: dict[str, str],
) -> dict[str, Any]:
    return {
        "attributes": _labels(labels),
        "count": str(sum(counts)),
        "sum": total,
        "bucketCounts": [str(each) for each in counts],
        "explicitBounds": bounds,
        **times,
    }


def _labels(labels: Labels) -> list[dict[str, Any]]:
    return [_attribute(names.LABELS.get(key, key), value) for key, value in labels]


# Attributes


def _attributes(attributes: Mapping[str, Value]) -> list[Any]:
    return [
        {"key": key, "value": {"stringValue": each} if isinstance(each, str) else _value(each)}
        for key, each in attributes.items()
    ]


def _attribute(key: str, value: Value) -> dict[str, Any]:
    return {"key": key, "value": _value(value)}


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"arrayValue": {"values": [_value(each) for each in value]}}
