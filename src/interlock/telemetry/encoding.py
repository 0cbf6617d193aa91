"""Spans as a request of OTLP in JSON.

Specification: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding. Ids are
hexadecimal, enumerations are numbers, 64-bit integers are texts, and members are in lowerCamelCase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from interlock import __version__
from interlock.observing import TraceContext
from interlock.telemetry import names
from interlock.telemetry.span import SpanEvent, TraceSpan, Value
from interlock.text.quoting import replace_surrogates

_encode = msgspec.json.Encoder().encode
_REMOTE = 0x300  # in `flags`: whether the parent is remote is known, and it is
_LOCAL = 0x100
_SCOPE = {"name": "interlock", "version": __version__}
_STATUS_ERROR = 2


def request(spans: Iterable[TraceSpan], resource: Mapping[str, Value]) -> bytes:
    """Return the body of a request that exports spans of one resource."""
    scope = {"scope": _SCOPE, "spans": [_span(each) for each in spans]}
    of_resource = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}
    body = {"resourceSpans": [of_resource]}
    try:
        return _encode(body)
    except UnicodeEncodeError:  # a lone surrogate, such as in the name of a tool
        return _encode(replace_surrogates(body))


def _span(span: TraceSpan) -> dict[str, Any]:
    found: dict[str, Any] = {
        "traceId": span.trace,
        "spanId": span.id,
        "flags": 1 | (_REMOTE if span.is_remote_parent else _LOCAL),
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start),
        "endTimeUnixNano": str(span.end),
        "attributes": _attributes(span.attributes),
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
