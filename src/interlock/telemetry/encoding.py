"""Spans and metrics as requests of OTLP in JSON.

Specification: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding. Ids are
hexadecimal, enumerations are numbers, 64-bit integers are texts, and members are in lowerCamelCase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from interlock import __version__
from interlock.layers.exposition import COUNTER, Family, Labels
from interlock.observing import TraceContext
from interlock.telemetry import names
from interlock.telemetry.span import SpanEvent, TraceSpan, Value
from interlock.text.quoting import replace_surrogates

_encode = msgspec.json.Encoder().encode
_REMOTE = 0x300  # in `flags`: whether the parent is remote is known, and it is
_LOCAL = 0x100
_SCOPE = {"name": "interlock", "version": __version__}
_STATUS_ERROR = 2
_UNIQUE = frozenset((names.CALL, names.REQUEST_ID, names.TOOL_CALL))  # values of one call
_CUMULATIVE = {"aggregationTemporality": 2}


def request(spans: Iterable[TraceSpan], resource: Mapping[str, Value]) -> bytes:
    """Return the body of a request that exports spans of one resource."""
    scope = {"scope": _SCOPE, "spans": [_span(each) for each in spans]}
    of_resource = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}
    return _encode_lossy({"resourceSpans": [of_resource]})


def _encode_lossy(value: dict[str, Any]) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # a lone surrogate, such as in the name of a tool
        return _encode(replace_surrogates(value))


def _span(span: TraceSpan) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": span.trace,
        "spanId": span.id,
        "flags": 1 | (_REMOTE if span.is_remote_parent else _LOCAL),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": [
            _attribute(key, value) if key in _UNIQUE else _cached(key, value)
            for key, value in span.attributes.items()
        ],
    }
    if span.parent:
        found["parentSpanId"] = span.parent
    if span.trace_state:
        found["traceState"] = span.trace_state
    if span.links:
        found["links"] = [_link(each) for each in span.links]
    if span.events:
        found["events"] = [_event(each) for each in span.events]
    if span.error:
        found["attributes"].append(_attribute(names.ERROR, span.error))
        found["status"] = {"code": _STATUS_ERROR}
    return found


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


@lru_cache(2_048)
def _cached(key: str, value: Value) -> Raw:
    """Encode an attribute whose value many spans share."""
    return Raw(_encode_lossy(_attribute(key, value)))


def _attributes(attributes: Mapping[str, Value]) -> list[dict[str, Any]]:
    return [_attribute(key, value) for key, value in attributes.items()]


def _attribute(key: str, value: Value) -> dict[str, Any]:
    return {"key": key, "value": _value(value)}


def _value(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"arrayValue": {"values": [_value(each) for each in value]}}
