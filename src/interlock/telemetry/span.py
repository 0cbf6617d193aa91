"""A span, and the span that is current in a task."""

from __future__ import annotations

from contextvars import ContextVar
from random import getrandbits

from msgspec import Raw, Struct, field

from interlock.calls import Call
from interlock.observing import TraceContext

INTERNAL, SERVER, CLIENT = 1, 2, 3  # kinds, as OTLP numbers them
Value = str | int | tuple[str, ...]


class SpanEvent(Struct):
    """Something that happened during a span, at a time in nanoseconds since 1970."""

    name: str
    at: int
    attributes: dict[str, Value]


class SharedAttributes(Struct, eq=False):
    """Attributes that many spans have.

    Attributes:
        values: The attributes, which never change.
        encoded: The attributes as the exporter sends them; empty until it has encoded them.
    """

    values: dict[str, Value]
    encoded: tuple[Raw, ...] = ()


def _new_id() -> str:
    return (getrandbits(64) or 1).to_bytes(8, "big").hex()


class TraceSpan(Struct, eq=False):
    """One operation of a trace. Nothing is recorded in a span that is not sampled.

    Attributes:
        trace, id, parent: The ids: of the trace, of this span, and of its parent or "".
        trace_state: The `tracestate` of the trace.
        is_sampled: Whether this span is recorded and exported.
        is_remote_parent: Whether the parent is a span of another process.
        name, kind, links, events: The content.
        own: The attributes that only this span has, or few others.
        of_request: The attributes of the request; None if the span covers no request.
        of_call: The attributes of the call, from the end of the span on; None without a call.
        start, end: Nanoseconds since 1970; `start` is 0 if the span is not sampled, and `end` until
            the span ends.
        error: The value of `error.type`; "" without an error.
        call: The call that this span covers.
        has_call: Whether that call is under way, which may outlast the span: a parked call
            continues in later requests.
        names_operation: Whether this span, or one around it, counts as the operation of its call.
        made_context: The value of `context` once it was read.
    """

    trace: str
    parent: str
    trace_state: str
    is_sampled: bool
    kind: int
    name: str
    id: str = field(default_factory=_new_id)
    is_remote_parent: bool = False
    start: int = 0
    end: int = 0
    own: dict[str, Value] = {}
    of_request: SharedAttributes | None = None
    of_call: SharedAttributes | None = None
    links: tuple[TraceContext, ...] = ()
    events: tuple[SpanEvent, ...] = ()
    error: str = ""
    call: Call | None = None
    has_call: bool = False
    names_operation: bool = False
    made_context: TraceContext | None = None

    @property
    def attributes(self) -> dict[str, Value]:
        """All attributes, but for `error.type`."""
        shared = (each for each in (self.of_request, self.of_call) if each is not None)
        return {**self.own, **{key: each.values[key] for each in shared for key in each.values}}

    @property
    def context(self) -> TraceContext:
        """The context that peers and children get."""
        made = self.made_context
        if made is None:
            flags = "01" if self.is_sampled else "00"
            made = TraceContext(f"00-{self.trace}-{self.id}-{flags}", self.trace_state)
            self.made_context = made
        return made


current: ContextVar[TraceSpan | None] = ContextVar("interlock.span", default=None)


def running_span() -> TraceSpan | None:
    """Return the current span; None if there is none, or if it and its call have ended.

    A task that outlives the span in which it was started, such as the reader of a connection, has
    no current span any more.
    """
    span = current.get()
    return None if span is None or (span.end and not span.has_call) else span


def open_span() -> TraceSpan | None:
    """Return the current span if it is sampled and has not ended, so that more can be noted."""
    span = current.get()
    return None if span is None or span.end or not span.is_sampled else span
