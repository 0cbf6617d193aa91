"""A collector of OTLP over HTTP in JSON that refuses what real collectors refuse.

The rules and their sources:

- POST to /v1/traces or /v1/metrics with JSON or protobuf; 404, 405 and 415 otherwise:
  https://github.com/open-telemetry/opentelemetry-collector/blob/main/receiver/otlpreceiver/otlphttp.go
- ids are hexadecimal texts of 32 and 16 digits, never base64; 64-bit integers are decimal texts;
  enumerations are numbers only; names of members are in lowerCamelCase:
  https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
- an id of zeros is invalid, a span needs a name, the end is not before the start, and keys of
  attributes are unique and not empty:
  https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto
- a metric has one kind of data; bounds ascend, there is one more bucket than bounds, and the count
  is the sum of the buckets; sums and histograms state their temporality:
  https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/metrics/v1/metrics.proto
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

_TRACE, _SPAN = re.compile("(?!0+$)[0-9a-f]{32}"), re.compile("(?!0+$)[0-9a-f]{16}")
_UINT64 = re.compile("0|[1-9][0-9]{0,19}")
_SPAN_KEYS = {
    "traceId", "spanId", "parentSpanId", "traceState", "flags", "name", "kind",
    "startTimeUnixNano", "endTimeUnixNano", "attributes", "droppedAttributesCount", "events",
    "droppedEventsCount", "links", "droppedLinksCount", "status",
}  # fmt: skip
# https://opentelemetry.io/docs/specs/otel/metrics/api/#instrument-name-syntax
PROTOBUF = "application/x-protobuf"
_IDS = ("traceId", "spanId", "parentSpanId")
_METRIC = re.compile("[A-Za-z][A-Za-z0-9_./-]{0,254}")
_LINK_KEYS = {"traceId", "spanId", "traceState", "attributes", "droppedAttributesCount", "flags"}


def check(body: Json) -> list[Json]:
    """Return the spans of a request, with attributes as a dict; raise an error if it is invalid."""
    found = []
    assert body.keys() == {"resourceSpans"}
    for of_resource in body["resourceSpans"]:
        resource = _attributes(of_resource["resource"]["attributes"])
        assert resource["service.name"]
        for scope in of_resource["scopeSpans"]:
            assert scope["scope"]["name"]
            found += [{**_span(each), "resource": resource} for each in scope["spans"]]
    return found


def check_metrics(body: Json) -> tuple[Json, dict[str, Json]]:
    """Return the resource and the metrics of a request by name; raise an error if it is invalid.

    The points of a metric are a dict by their attributes, which are sorted pairs.
    """
    assert body.keys() == {"resourceMetrics"}
    ((of_resource),) = body["resourceMetrics"]
    resource = _attributes(of_resource["resource"]["attributes"])
    found: dict[str, Json] = {}
    for scope in of_resource["scopeMetrics"]:
        for metric in scope.get("metrics", ()):
            assert metric["name"] not in found
            found[metric["name"]] = _metric(metric)
    return resource, found


def _metric(metric: Json) -> Json:
    assert _METRIC.fullmatch(metric["name"]), metric["name"]
    ((kind, data),) = (item for item in metric.items() if item[0] in ("gauge", "sum", "histogram"))
    assert {"name", kind} <= metric.keys() <= {"name", "description", "unit", kind}
    extra = {"gauge": set(), "histogram": {"aggregationTemporality"}}
    has = {"dataPoints", *extra.get(kind, {"aggregationTemporality", "isMonotonic"})}
    assert data.keys() == has
    assert data.get("aggregationTemporality", 2) == 2
    points: dict[tuple[tuple[str, Any], ...], Json] = {}
    for point in data["dataPoints"]:
        key = tuple(sorted(_attributes(point.get("attributes", [])).items()))
        assert key not in points
        points[key] = point
        times = [point[each] for each in ("startTimeUnixNano", "timeUnixNano") if each in point]
        assert all(_UINT64.fullmatch(each) for each in times)
        assert sorted(times, key=int) == times
        if kind == "histogram":
            counts = [int(each) for each in point["bucketCounts"]]
            assert len(counts) == len(point["explicitBounds"]) + 1
            assert sum(counts) == int(point["count"])
            assert sorted({*point["explicitBounds"]}) == point["explicitBounds"]
        else:
            assert isinstance(point["asDouble"], int | float)
    return {"unit": metric.get("unit", ""), "kind": kind, "points": points}


def _span(span: Json) -> Json:
    assert span.keys() <= _SPAN_KEYS, span.keys() - _SPAN_KEYS
    _ids(span)
    assert "parentSpanId" not in span or _SPAN.fullmatch(span["parentSpanId"])
    assert isinstance(span["name"], str)
    assert span["name"]
    assert span["kind"] in range(1, 6)
    times = [span["startTimeUnixNano"], span["endTimeUnixNano"]]
    assert all(isinstance(each, str) and _UINT64.fullmatch(each) for each in times)
    assert int(times[0]) <= int(times[1])
    for link in span.get("links", ()):
        assert link.keys() <= _LINK_KEYS
        _ids(link)
    status = span.get("status", {})
    assert status.keys() <= {"code", "message"}
    assert status.get("code", 0) in (0, 1, 2)
    return {**span, "attributes": _attributes(span.get("attributes", []))}


def _ids(span: Json) -> None:
    assert _TRACE.fullmatch(span["traceId"])
    assert _SPAN.fullmatch(span["spanId"])
    assert span.get("flags", 0) in range(2**32)


def _attributes(attributes: list[Json]) -> Json:
    found = {}
    for each in attributes:
        assert each.keys() == {"key", "value"}
        assert each["key"]
        assert each["key"] not in found
        found[each["key"]] = _value(each["value"])
    return found


def _value(value: Json) -> Any:
    ((kind, content),) = value.items()
    if kind == "stringValue":
        assert isinstance(content, str)
        return content
    if kind == "intValue":
        assert isinstance(content, str)
        return int(content)
    if kind == "boolValue":
        return content
    assert kind == "arrayValue"
    return [_value(each) for each in content["values"]]


def decoded(path: str, body: bytes) -> Json:
    """Return a message in protobuf as the same message in JSON."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace

    kinds = {
        "/v1/traces": trace.ExportTraceServiceRequest,
        "/v1/metrics": metrics.ExportMetricsServiceRequest,
    }
    found = MessageToDict(kinds[path].FromString(body), use_integers_for_enums=True)
    empty = {} if path == "/v1/metrics" else {"resourceSpans": []}  # protobuf omits empty lists
    return _in_hex(empty | found)


def _in_hex(value: Any) -> Any:
    """Return a message with ids in hexadecimal, which protobuf's own JSON has in base64."""
    if isinstance(value, list):
        return [_in_hex(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: b64decode(each).hex() if key in _IDS else _in_hex(each) for key, each in value.items()
    }


class Collector:
    """A running collector.

    Attributes:
        url: The value for OTEL_EXPORTER_OTLP_ENDPOINT.
        spans: The accepted spans; `attributes` and `resource` are dicts.
        metrics: The accepted metrics by name, of the last request for each resource's instance.
        requests: The headers of all requests, with names in lower case.
        refusals: Why requests were refused because they were invalid.
        script: The statuses and headers with which the next requests are answered.
        answers: Cleared while requests must wait for their answers.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Json] = []
        self.metrics: dict[str, dict[str, Json]] = {}
        self.requests: list[dict[str, str]] = []
        self.refusals: list[str] = []
        self.script: list[tuple[int, dict[str, str]]] = []
        self.answers = threading.Event()
        self.answers.set()
        self._changed = threading.Condition()

    def wait_for(self, requests: int) -> None:
        """Wait until this many requests have arrived."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.requests) >= requests, 60.0)

    def named(self, name: str) -> Json:
        """Return the only span with a name."""
        (found,) = (each for each in self.spans if each["name"] == name)
        return found

    @property
    def names(self) -> list[str]:
        return [each["name"] for each in self.spans]

    def accept(self, path: str, message: Json) -> None:
        """Keep a message after checking it; `path` is the one over HTTP."""
        if path == "/v1/traces":
            self.spans += check(message)
        else:
            resource, metrics = check_metrics(message)
            self.metrics[resource["service.instance.id"]] = metrics

    def take(self, verb: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        with self._changed:
            self.requests.append(headers)
            self._changed.notify_all()
            if self.script:
                return self.script.pop(0)
            if path not in ("/v1/traces", "/v1/metrics") or verb != "POST":
                return (404 if verb == "POST" else 405), {}
            read = {"application/json": lambda _, body: json.loads(body), PROTOBUF: decoded}
            kind = headers.get("content-type", "")
            if kind not in read:
                return 415, {}
            try:
                if headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                self.accept(path, read[kind](path, body))
            except (AssertionError, KeyError, TypeError, ValueError, OSError) as error:
                self.refusals.append(repr(error))
                return 400, {}
            return 200, {}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, more = collector.take(self.command, self.path, headers, body)
            collector.answers.wait()
            with suppress(ConnectionError):  # the program has ended
                self.send_response(status)
                for name, value in {"content-type": "application/json", **more}.items():
                    self.send_header(name, value)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        collector.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()
    assert collector.refusals == []
