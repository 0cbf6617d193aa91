"""The trace of a request, the observer that makes spans, and the meter that exports metrics.

`observer` and `meter` are None unless telemetry is on, so each place that reports to the observer
costs one comparison. `telemetry` has the only implementation.

W3C Trace Context, level 2: https://www.w3.org/TR/trace-context-2/
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from msgspec import Struct

MAX_STATE = 512  # characters of `tracestate`; a longer value is dropped

_PARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)
_STATE = re.compile(r"[\x20-\x7e]*=[\x20-\x7e]*")
_T = TypeVar("_T")


class TraceContext(Struct, frozen=True):
    """The position of a request in a distributed trace, valid by W3C Trace Context.

    Attributes:
        parent: The value of `traceparent`: version, trace id, span id and flags; "" if only other
            formats are sent.
        state: The value of `tracestate`; "" if there is none.
        others: The members of other formats, such as B3, to send instead or as well.
    """

    parent: str
    state: str = ""
    others: tuple[tuple[str, str], ...] = ()


def trace_context(parent: object, state: object = "") -> TraceContext | None:
    """Return the context in the values of `traceparent` and `tracestate`; None if it is invalid."""
    if not isinstance(parent, str) or not 55 <= len(parent) <= MAX_STATE:
        return None
    found = _PARENT.fullmatch(parent)
    if found is None or (found[1] is not None and parent.startswith("00")):
        return None
    if not (isinstance(state, str) and len(state) <= MAX_STATE and _STATE.fullmatch(state)):
        state = ""
    return TraceContext(parent, state)


def header_context(parent: bytes | None, state: bytes | None = None) -> TraceContext | None:
    """Return the context in the HTTP headers of these names; None if it is missing or invalid."""
    if parent is None:
        return None
    return trace_context(parent.decode("latin-1"), (state or b"").decode("latin-1"))


def environment_context() -> TraceContext | None:
    """Return the context in TRACEPARENT and TRACESTATE, which CI systems and Claude Code set."""
    return trace_context(os.environ.get("TRACEPARENT"), os.environ.get("TRACESTATE", ""))


def trace_headers(trace: TraceContext) -> dict[str, str]:
    """Return the HTTP headers that carry a context."""
    return dict(trace_members(trace))


def trace_members(trace: TraceContext) -> list[tuple[str, str]]:
    """Return the members of `_meta` that carry a context, which are also the names of headers."""
    found = [("traceparent", trace.parent)] if trace.parent else []
    if trace.state:
        found.append(("tracestate", trace.state))
    return [*found, *trace.others]


class Observer(Protocol):
    """Makes spans of requests, calls, models and answers."""

    def request(
        self, server: Any, method: str, params: bytes, options: Any
    ) -> Coroutine[Any, Any, Any]:
        """Send a request to a server within a CLIENT span.

        Args:
            server: The `ReconnectingConnection` that sends the request.
            method, params: The request.
            options: The `RequestOptions` of the request.
        """
        ...

    def handshake(
        self, connection: Any, http: Any, method: str, params: bytes, options: Any
    ) -> tuple[Any, Any]:
        """Start a request of a handshake; a CLIENT span covers it if it is within another span.

        Args:
            connection: The `Connection` that sends the request.
            http: The `HttpTarget` of a server at a URL; None for other servers.
            method, params: The request.
            options: The `RequestOptions` of the request.

        Returns:
            The request's id and the future of its result, as `Connection.start` returns them.
        """
        ...

    def serve(self, server: Any, request: Any, context: Any) -> Awaitable[bytes]:
        """Answer a client's request within a SERVER span.

        Args:
            server: The `Answering` that answers the request.
            context: The request's `Context`.
        """
        ...

    def call(self, handle: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """Return the outermost layer of calls."""
        ...

    def refused(self, reason: str, call: str) -> None:
        """Note why the current request is refused, and the id of its call."""
        ...

    def resumed(self, call: str) -> None:
        """Note that the current request continues a call, or asks about it, given the call's id."""
        ...

    def waiting(self, reason: str) -> AbstractContextManager[None]:
        """Note in the current span that it waits within this context, and for how long."""
        ...

    def model(self, model: Any, events: AsyncGenerator[_T, None]) -> AsyncGenerator[_T, None]:
        """Return the events of an answer of a `Model`; a span covers them."""
        ...

    def answer(
        self, name: str, events: AsyncGenerator[_T, None], conversation: Callable[[], str]
    ) -> AsyncGenerator[_T, None]:
        """Return the events of an agent's answer; a span covers them and what they cause.

        Args:
            name: The agent's name.
            conversation: Returns the conversation's id, or "". It is called at the end.
        """
        ...

    def use_key(self, key: bytes) -> None:
        """Hash the ids of sessions and conversations with a key that several processes share."""
        ...

    def current(self) -> TraceContext | None:
        """Return the context of the current span; None outside of any span."""
        ...

    def current_call(self) -> str:
        """Return the id of the call that the current span covers; "" if it covers none."""
        ...


class Meter(Protocol):
    """Exports metrics."""

    def following(self, read: Callable[[], Awaitable[Any]]) -> AbstractAsyncContextManager[None]:
        """Export the list of `Family` that `read` returns, regularly and at the end of a block."""
        ...


observer: Observer | None = None
meter: Meter | None = None
span_counts: Counter[str] | None = None  # by what happened to the spans; None without spans


def waiting(reason: str) -> AbstractContextManager[None]:
    """Note in the current span that a call waits within this context, such as for an approval."""
    return nullcontext() if observer is None else observer.waiting(reason)
