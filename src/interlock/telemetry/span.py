"""A span, and the span that is current in a task."""

from __future__ import annotations

from contextvars import ContextVar
from random import getrandbits

from msgspec import Struct, field

from interlock.calls import Call
from interlock.observing import TraceContext
from interlock.telemetry import names
from interlock.types import RequestId

MAX_ID = 64  # characters of the id that a client chose for its request

INTERNAL, SERVER, CLIENT = 1, 2, 3  # kinds, as OTLP numbers them
Value = str | int | tuple[str, ...]


class SpanEvent(Struct):
    """Something that happened during a span, at a time in nanoseconds since 1970."""

    name: str
    at: int
    attributes: dict[str, Value]


# The facts of a request: the method; the name of its tool or prompt, or ""; the revision, or ""
# if it is not known yet; whether the span counts as the operation of its call; whether HTTP carries
# the request; and the server's host and port, or None for a server in this process or below it.
RequestFacts = tuple[str, str, str, bool, bool, tuple[str, int] | None]
CallFacts = tuple[str, str, str]  # the server, the risk, and the id of the rule; "" if unknown


def request_attributes(facts: RequestFacts) -> dict[str, Value]:
    """Return the attributes that all spans of such a request have."""
    method, name, revision, is_operation, is_http, address = facts
    found: dict[str, Value] = {names.METHOD: method}
    if revision:
        found[names.REVISION] = revision
    if is_operation:
        found[names.OPERATION] = names.EXECUTE_TOOL
    if name:
        found[names.PROMPT if method == "prompts/get" else names.TOOL] = name
    if address is not None:
        found[names.SERVER_ADDRESS], found[names.SERVER_PORT] = address
    if is_http:
        found[names.TRANSPORT], found[names.PROTOCOL] = "tcp", "http"
    else:
        found[names.TRANSPORT] = "pipe"
    return found


def call_attributes(facts: CallFacts) -> dict[str, Value]:
    """Return the attributes that all spans of such a call have."""
    found = zip((names.SERVER, names.RISK, names.RULE), facts, strict=True)
    return {key: each for key, each in found if each}


def new_id() -> str:
    """Return a random id of a span, which is not zero."""
    return (getrandbits(64) or 1).to_bytes(8, "big").hex()


class TraceSpan(Struct, eq=False):
    """One operation of a trace. Nothing is recorded in a span that is not sampled.

    Attributes:
        trace, id, parent: The ids: of the trace, of this span, and of its parent or "".
        trace_state: The `tracestate` of the trace.
        is_sampled: Whether this span is recorded and exported.
        is_remote_parent: Whether the parent is a span of another process.
        name, kind, links, events: The content.
        own: The attributes that only this span has, or few others, but for the next three.
        request_id: The id of the request; None if it was not sent, or covers no request.
        address: The client's network address; "" if unknown.
        call_id: The id of the call; "" without a call.
        of_request: The facts of the request; None if the span covers no request.
        of_call: The facts of the call, from the end of the span on; None without a call.
        start, end: Nanoseconds since 1970; `start` is 0 if the span is not sampled, and `end` until
            the span ends.
        error: The value of `error.type`; "" without an error.
        call: The call that this span covers.
        has_call: Whether that call is under way, which may outlast the span: a parked call
            continues in later requests.
        names_operation: Whether this span, or one around it, counts as the operation of its call.
        made_context: The value of `context` once it was read.
        next_id: An id for a span below this one; "" if there is none left.
    """

    trace: str
    parent: str
    trace_state: str
    is_sampled: bool
    kind: int
    name: str
    id: str = field(default_factory=new_id)
    next_id: str = ""
    is_remote_parent: bool = False
    start: int = 0
    end: int = 0
    own: dict[str, Value] = {}
    request_id: RequestId | None = None
    address: str = ""
    call_id: str = ""
    of_request: RequestFacts | None = None
    of_call: CallFacts | None = None
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
        found = dict(self.own)
        if self.request_id is not None:
            found[names.REQUEST_ID] = str(self.request_id)[:MAX_ID]
        if self.address:
            found[names.CLIENT_ADDRESS] = self.address
        if self.call_id:
            found[names.CALL] = self.call_id
        if self.of_request is not None:
            found |= request_attributes(self.of_request)
        if self.of_call is not None:
            found |= call_attributes(self.of_call)
        return found

    @property
    def context(self) -> TraceContext:
        """The context that peers and children get."""
        made = self.made_context
        if made is None:
            flags = "01" if self.is_sampled else "00"
            made = TraceContext(f"00-{self.trace}-{self.id}-{flags}", self.trace_state)
            self.made_context = made
        return made

    def shorten(self, most: int) -> None:
        """Shorten the attributes that are texts to `most` characters, after the end of the span."""
        self.own = {
            key: value[:most] if isinstance(value, str) else value
            for key, value in self.attributes.items()
        }
        self.of_request = self.of_call = self.request_id = None
        self.address = self.call_id = ""

    def note_id(self, id: int) -> None:
        """Note the id of the request that is sent within this span."""
        self.request_id = id


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
