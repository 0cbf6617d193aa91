"""Run a peer's server with a provider of spans, as `opentelemetry-instrument` does.

Arguments: "plain", or "asgi" for a span around each HTTP request as of the instrumentation of ASGI;
then the server's file and its arguments. Spans go to $COLLECTOR, each when it ends. The package of
the SDK is not needed: the provider implements the interfaces of `opentelemetry-api`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from random import getrandbits
from time import time_ns
from typing import Any
from urllib.request import Request, urlopen

from opentelemetry import trace
from opentelemetry.propagate import extract
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags


class PeerSpan(trace.Span):
    """A span that is sent when it ends. Only its name, its place and its texts are kept."""

    def __init__(self, name: str, parent: SpanContext, kind: SpanKind, attributes: Any) -> None:
        self._name, self._parent, self._kind = name, parent, kind
        self._start, self._attributes = time_ns(), dict(attributes or {})
        id = parent.trace_id if parent.is_valid else getrandbits(128)
        sampled, state = TraceFlags(TraceFlags.SAMPLED), parent.trace_state
        self._context = SpanContext(id, getrandbits(64), False, sampled, state)

    def get_span_context(self) -> SpanContext:
        return self._context

    def is_recording(self) -> bool:
        return True

    def update_name(self, name: str) -> None:
        self._name = name

    def set_attribute(self, key: str, value: Any) -> None:
        self._attributes[key] = value

    def set_attributes(self, attributes: Any) -> None:
        self._attributes |= attributes

    def add_event(self, name: str, attributes: Any = None, timestamp: Any = None) -> None: ...

    def set_status(self, status: Any, description: Any = None) -> None: ...

    def record_exception(
        self, exception: Any, attributes: Any = None, timestamp: Any = None, escaped: bool = False
    ) -> None: ...

    def end(self, end_time: int | None = None) -> None:
        texts = {key: each for key, each in self._attributes.items() if isinstance(each, str)}
        span: dict[str, Any] = {
            "traceId": f"{self._context.trace_id:032x}",
            "spanId": f"{self._context.span_id:016x}",
            "name": self._name,
            "kind": self._kind.value + 1,
            "startTimeUnixNano": str(self._start),
            "endTimeUnixNano": str(time_ns()),
            "attributes": _attributes(texts),
        }
        if self._parent.is_valid:
            span["parentSpanId"] = f"{self._parent.span_id:016x}"
        resource = {"attributes": _attributes({"service.name": os.environ["OTEL_SERVICE_NAME"]})}
        scopes = [{"scope": {"name": "peer"}, "spans": [span]}]
        body = json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": scopes}]})
        url, kind = f"{os.environ['COLLECTOR']}/v1/traces", {"Content-Type": "application/json"}
        urlopen(Request(url, body.encode(), kind)).close()


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": each}} for key, each in values.items()]


class PeerTracer(trace.Tracer):
    def start_span(
        self, name: str, context: Any = None, kind: SpanKind = SpanKind.INTERNAL,
        attributes: Any = None, *_: Any, **__: Any,
    ) -> trace.Span:  # fmt: skip
        parent = trace.get_current_span(context).get_span_context()
        return PeerSpan(name, parent, kind, attributes)

    @trace._agnosticcontextmanager
    def start_as_current_span(
        self, name: str, context: Any = None, kind: SpanKind = SpanKind.INTERNAL,
        attributes: Any = None, *_: Any, **__: Any,
    ) -> Any:  # fmt: skip
        with trace.use_span(self.start_span(name, context, kind, attributes), True) as span:
            yield span


class PeerProvider(trace.TracerProvider):
    def get_tracer(self, *_: Any, **__: Any) -> trace.Tracer:
        return PeerTracer()


class Instrumented:
    """An ASGI application whose requests have a span, below the context of their headers."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        tracer, name = trace.get_tracer("asgi"), f"{scope['method']} {scope['path']}"
        with tracer.start_as_current_span(name, extract(headers), kind=SpanKind.SERVER):
            await self._app(scope, receive, send)


if __name__ == "__main__":
    way, file = sys.argv[1:3]
    trace.set_tracer_provider(PeerProvider())
    if way == "asgi":
        import uvicorn

        config = uvicorn.Config
        uvicorn.Config = lambda app, **options: config(Instrumented(app), **options)  # type: ignore
    sys.argv[:] = sys.argv[2:]
    sys.path.insert(0, str(Path(file).parent))
    runpy.run_path(file, run_name="__main__")
