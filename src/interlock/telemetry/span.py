"""A span, and the span that is current in a task."""

from __future__ import annotations

from contextvars import ContextVar
from random import getrandbits
from time import time_ns

from msgspec import Struct

from interlock.calls import Call
from interlock.observing import TraceContext

INTERNAL, SERVER, CLIENT = 1, 2, 3  # kinds, as OTLP numbers them
Value = str | int | tuple[str, ...]


class SpanEvent(Struct):
    """Something that happened during a span, at a time in nanoseconds since 1970."""

    name: str
    at: int
    attributes: dict[str, Value]


class TraceSpan:
    """One operation of a trace. Nothing is recorded in a span that is not sampled.

    Attributes:
        trace, id, parent: The ids: of the trace, of this span, and of its parent or "".
        trace_state: The `tracestate` of the trace.
        is_sampled: Whether this span is recorded and exported.
        is_remote_parent: Whether the parent is a span of another process.
        name, kind, attributes, links, events: The content.
        start, end: Nanoseconds since 1970; `end` is 0 until the span ends.
        error: The value of `error.type`; "" without an error.
        call: The call that this span covers.
        has_call: Whether that call is under way, which may outlast the span: a parked call
            continues in later requests.
        names_operation: Whether this span, or one around it, counts as the operation of its call.
    """

    __slots__ = (
        "attributes", "call", "end", "error", "events", "has_call", "id", "is_remote_parent",
        "is_sampled", "kind", "links", "name", "names_operation", "parent", "start", "trace",
        "trace_state",
    )  # fmt: skip

    def __init__(
        self, trace: str, parent: str, trace_state: str, *, is_sampled: bool, kind: int, name: str
    ) -> None:
        self.trace = trace
        self.id = f"{getrandbits(64) or 1:016x}"
        self.parent = parent
        self.trace_state = trace_state
        self.is_sampled = is_sampled
        self.is_remote_parent = False
        self.kind = kind
        self.name = name
        self.start = time_ns() if is_sampled else 0
        self.end = 0
        self.attributes: dict[str, Value] = {}
        self.links: list[TraceContext] = []
        self.events: list[SpanEvent] = []
        self.error = ""
        self.call: Call | None = None
        self.has_call = False
        self.names_operation = False

    @property
    def context(self) -> TraceContext:
        """The context that peers and children get."""
        flags = "01" if self.is_sampled else "00"
        return TraceContext(f"00-{self.trace}-{self.id}-{flags}", self.trace_state)


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
