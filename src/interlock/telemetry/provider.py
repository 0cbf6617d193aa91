"""Makes spans with a provider of OpenTelemetry, so that they join those of other libraries.

The module needs the package `opentelemetry-api`. The provider samples, limits and exports spans.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token
from functools import cached_property
from typing import Any

from msgspec.structs import replace
from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context as OtelContext
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
)

from interlock import __version__
from interlock.context import Context
from interlock.observing import TraceContext
from interlock.protocol import RequestOptions
from interlock.telemetry import names
from interlock.telemetry.sampling import DEFAULT, sampler
from interlock.telemetry.settings import Export, TracingSettings
from interlock.telemetry.span import CLIENT, INTERNAL, SERVER, TraceSpan, current, running_span
from interlock.telemetry.tracer import Tracer

_KINDS = {INTERNAL: SpanKind.INTERNAL, SERVER: SpanKind.SERVER, CLIENT: SpanKind.CLIENT}
_UNUSED = TracingSettings(Export(""), sampler(DEFAULT, ""))  # the provider decides
_TRACE_CONTEXT = frozenset(("traceparent", "tracestate"))


class ProvidedSpan(TraceSpan, eq=False, kw_only=True):
    """A span of a provider, and what is noted about it until it ends.

    Attributes:
        otel: The provider's span.
    """

    otel: trace.Span

    @classmethod
    def of(cls, otel: trace.Span, kind: int, name: str) -> ProvidedSpan:
        found = otel.get_span_context()
        id, trace_id = f"{found.span_id:016x}", f"{found.trace_id:032x}"
        state = found.trace_state.to_header()
        return cls(trace_id, "", state, otel.is_recording(), kind, name, id, otel=otel)


class ProviderTracer(Tracer):
    """Makes spans with a provider of OpenTelemetry.

    Args:
        provider: The provider; None for the global one.
        ambient: The context in which spans begin that have no other parent; None for none.
    """

    _is_alone = False

    def __init__(
        self, provider: trace.TracerProvider | None = None, ambient: TraceContext | None = None
    ) -> None:
        super().__init__(_UNUSED, _finish, ambient)
        self._tracer = trace.get_tracer("interlock", __version__, provider)

    @cached_property
    def _formats(self) -> bool:
        """Whether the propagators have other formats than that of W3C Trace Context."""
        return bool(propagate.get_global_textmap().fields - _TRACE_CONTEXT - {"baggage"})

    # Spans

    def _around(self) -> TraceSpan | None:
        """Return the current span, which may be one of another library."""
        span, otel = running_span(), trace.get_current_span(_surrounding())
        if not otel.get_span_context().is_valid:
            return span
        if isinstance(span, ProvidedSpan) and span.otel is otel:
            return span
        found = ProvidedSpan.of(otel, INTERNAL, "")
        if span is not None:
            found.names_operation, found.call = span.names_operation, span.call
        return found

    def _start(self, kind: int, name: str, parent: TraceSpan | TraceContext | None) -> TraceSpan:
        linked: list[trace.Link] = []
        surrounding = _surrounding()
        around = trace.get_current_span(surrounding).get_span_context()
        if isinstance(parent, ProvidedSpan):
            within = trace.set_span_in_context(parent.otel, surrounding)
        elif isinstance(parent, TraceContext):
            within = trace.set_span_in_context(NonRecordingSpan(_remote(parent)), OtelContext())
            if kind == SERVER and around.is_valid:  # such as the span of the HTTP request
                linked.append(trace.Link(around))
        else:
            within = surrounding
        span = ProvidedSpan.of(
            self._tracer.start_span(name, within, _KINDS[kind], links=linked), kind, name
        )
        if isinstance(parent, TraceSpan):
            span.names_operation, span.call = parent.names_operation, parent.call
        return span

    def _end(self, span: TraceSpan) -> None:
        super()._end(span)
        if isinstance(span, ProvidedSpan) and not span.is_sampled:
            span.otel.end()

    def _enter(self, span: TraceSpan) -> Any:
        assert isinstance(span, ProvidedSpan)  # noqa: S101 - `_start` makes no other
        return current.set(span), contexts.attach(
            trace.set_span_in_context(span.otel, contexts.get_current())
        )

    def _leave(self, token: Any) -> None:
        ours: Token[TraceSpan | None] = token[0]
        contexts.detach(token[1])
        current.reset(ours)

    # Contexts of other formats

    def _sent_within(self, span: TraceSpan, options: RequestOptions) -> RequestOptions:
        options = super()._sent_within(span, options)
        assert isinstance(span, ProvidedSpan)  # noqa: S101 - as above
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span.otel, contexts.get_current()))
        parent, state = carrier.pop("traceparent", ""), carrier.pop("tracestate", "")
        context = TraceContext(parent, state, tuple(carrier.items()))
        return replace(options, trace=context if parent or carrier else None)

    def _given(self, context: Context) -> TraceContext | None:
        """Return the trace of a client, in any format of the propagators."""
        if context.trace is not None or not self._formats:
            return context.trace
        texts = {key: each for key, each in context.meta.items() if isinstance(each, str)}
        carrier: Mapping[str, str] = {**context.headers, **texts}
        found = trace.get_current_span(propagate.extract(carrier, OtelContext()))
        remote = found.get_span_context()
        if not remote.is_valid:
            return None
        flags = f"{remote.trace_flags & 1:02x}"
        parent = f"00-{remote.trace_id:032x}-{remote.span_id:016x}-{flags}"
        return TraceContext(parent, remote.trace_state.to_header())


def _surrounding() -> OtelContext:
    """Return the current context; an empty one in a task that has outlived its span."""
    span = current.get()
    found = contexts.get_current()
    if isinstance(span, ProvidedSpan) and running_span() is None:
        return found if trace.get_current_span(found) is not span.otel else OtelContext()
    return found


def _remote(found: TraceContext) -> SpanContext:
    _, trace_id, span_id, flags, *_ = found.parent.split("-")
    state = TraceState.from_header([found.state]) if found.state else None
    sampled = TraceFlags(int(flags, 16) & 1)
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, sampled, state)


def _finish(span: TraceSpan) -> None:
    """Pass a span that has ended on to its provider."""
    assert isinstance(span, ProvidedSpan)  # noqa: S101 - `ProviderTracer` makes no other
    otel = span.otel
    otel.update_name(span.name)
    otel.set_attributes(dict(span.attributes))
    for link in span.links:
        otel.add_link(_remote(link))
    for event in span.events:
        otel.add_event(event.name, dict(event.attributes), event.at)
    if span.error:
        otel.set_attribute(names.ERROR, span.error)
        otel.set_status(Status(StatusCode.ERROR))
    otel.end(span.end)
