"""A collector of OTLP over HTTP in JSON that refuses what real collectors refuse.

The rules and their sources:

- POST to /v1/traces with Content-Type application/json; 404, 405 and 415 otherwise:
  https://github.com/open-telemetry/opentelemetry-collector/blob/main/receiver/otlpreceiver/otlphttp.go
- ids are hexadecimal texts of 32 and 16 digits, never base64; 64-bit integers are decimal texts;
  enumerations are numbers only; names of members are in lowerCamelCase:
  https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding
- an id of zeros is invalid, a span needs a name, the end is not before the start, and keys of
  attributes are unique and not empty:
  https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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
    assert kind == "arrayValue"
    return [_value(each) for each in content["values"]]


class Collector:
    """A running collector.

    Attributes:
        url: The value for OTEL_EXPORTER_OTLP_ENDPOINT.
        spans: The accepted spans; `attributes` and `resource` are dicts.
        requests: The headers of all requests, with names in lower case.
        refusals: Why requests were refused because they were invalid.
        script: The statuses and headers with which the next requests are answered.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Json] = []
        self.requests: list[dict[str, str]] = []
        self.refusals: list[str] = []
        self.script: list[tuple[int, dict[str, str]]] = []
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

    def take(self, verb: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        with self._changed:
            self.requests.append(headers)
            self._changed.notify_all()
            if self.script:
                return self.script.pop(0)
            if path != "/v1/traces" or verb != "POST":
                return (404 if verb == "POST" else 405), {}
            if headers.get("content-type") != "application/json":
                return 415, {}
            try:
                if headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                self.spans += check(json.loads(body))
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
        server.shutdown()
        thread.join()
        server.server_close()
    assert collector.refusals == []
