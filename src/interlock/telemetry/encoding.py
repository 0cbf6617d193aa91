"""Spans and metrics as requests of OTLP in JSON.

Specification: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding. Ids are
hexadecimal, enumerations are numbers, 64-bit integers are texts, and members are in lowerCamelCase.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import Any

import msgspec

from interlock import __version__
from interlock.layers.exposition import COUNTER, Family, Labels
from interlock.observing import TraceContext
from interlock.protocol.envelope import encode_lossy
from interlock.telemetry import names
from interlock.telemetry.span import (
    MAX_ID,
    CallFacts,
    RequestFacts,
    SpanEvent,
    TraceSpan,
    Value,
    call_attributes,
    request_attributes,
)

MAX_SHARED = 2_048  # encoded attributes that are kept, because later spans share them

_encode = msgspec.json.Encoder().encode
_REMOTE = 0x300  # in `flags`: whether the parent is remote is known, and it is
_LOCAL = 0x100
_SCOPE = {"name": "interlock", "version": __version__}
_FAILED = ',"status":{"code":2}'
_CUMULATIVE = {"aggregationTemporality": 2}


def head(resource: Mapping[str, Value]) -> bytes:
    """Return the beginning of all requests that export spans of one resource."""
    attributes, scope = encode_lossy(_attributes(resource)), _encode(_SCOPE)
    return (
        b'{"resourceSpans":[{"resource":{"attributes":%b},"scopeSpans":[{"scope":%b,"spans":['
    ) % (attributes, scope)


def request(head: bytes, spans: list[bytes]) -> bytes:
    """Return the body of a request, given the results of `head` and `span`."""
    # Only the result is large: with two large objects at a time, their memory would come from the
    # system for each request, which takes ten times as long as copying the spans.
    pieces = [head, *spans]
    pieces[:2] = [b"".join(pieces[:2])]
    pieces[-1] += b"]}]}]}"
    return b",".join(pieces)


def span(span: TraceSpan) -> bytes:
    """Encode a span that has ended.

    Most of its text was encoded for an earlier span.
    """
    own = "".join(map(_member, span.own.items())) if span.own else ""
    if (id := span.request_id) is not None:
        quoted = f'"{id}"' if type(id) is int else _quoted(str(id)[:MAX_ID])
        own += f',{{"key":"{names.REQUEST_ID}","value":{{"stringValue":{quoted}}}}}'
    if span.address:
        own += _address(span.address)
    if call := span.call_id:
        own += (
            f',{{"key":"{names.CALL}","value":{{"stringValue":{encode_basestring_ascii(call)}}}}}'
        )
    if span.of_call is not None:
        own += _call(span.of_call)
    if span.error or span.links or span.events or span.trace_state:
        own, rest = _with_rest(span, own)
    else:
        rest = ""
    if span.of_request is not None:
        described = _request(span.of_request)
    else:
        described, own = f'"name":{_quoted(span.name)},"attributes":[', own[1:]
    parent = f',"parentSpanId":"{span.parent}"' if span.parent else ""
    return (
        f'{{"traceId":"{span.trace}","spanId":"{span.id}"{parent},'
        f'"flags":{_REMOTE | 1 if span.is_remote_parent else _LOCAL | 1},"kind":{span.kind},'
        f'"startTimeUnixNano":"{span.start}","endTimeUnixNano":"{span.end}",'
        f"{described}{own}]{rest}}}"
    ).encode()


def _with_rest(span: TraceSpan, attributes: str) -> tuple[str, str]:
    """Return the attributes with that of an error, and the members that few spans have."""
    rest = ""
    if span.trace_state:
        rest += f',"traceState":{_quoted(span.trace_state)}'
    if span.links:
        rest += f',"links":[{",".join(map(_link, span.links))}]'
    if span.events:
        rest += f',"events":{encode_lossy([_event(each) for each in span.events]).decode()}'
    if span.error:
        attributes += _member((names.ERROR, span.error))
        rest += _FAILED
    return attributes, rest


@lru_cache(MAX_SHARED)
def _request(facts: RequestFacts) -> str:
    """Encode the name of a span and its first attributes."""
    method, name, *_ = facts
    shown = _quoted(f"{method} {name}" if name else method)
    attributes = "".join(map(_member, request_attributes(facts).items()))
    return f'"name":{shown},"attributes":[{attributes[1:]}'


@lru_cache(MAX_SHARED)
def _call(facts: CallFacts) -> str:
    return "".join(map(_member, call_attributes(facts).items()))


def _member(attribute: tuple[str, Value]) -> str:
    """Encode an attribute that follows another one."""
    return f",{encode_lossy(_attribute(*attribute)).decode()}"


@lru_cache(MAX_SHARED)
def _address(address: str) -> str:
    return _member((names.CLIENT_ADDRESS, address))


def _quoted(text: str) -> str:
    return encode_lossy(text).decode()  # a tool's name may contain a lone surrogate


def _event(event: SpanEvent) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event.at),
        "name": event.name,
        "attributes": _attributes(event.attributes),
    }


def _link(linked: TraceContext) -> str:
    parent, state = linked.parent, linked.state
    flags = int(parent[53:55], 16) & 1 | _REMOTE
    shown = f',"traceState":{_quoted(state)}' if state else ""
    return f'{{"traceId":"{parent[3:35]}","spanId":"{parent[36:52]}","flags":{flags}{shown}}}'


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
