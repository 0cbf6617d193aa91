"""Makes the spans of requests, calls, models and answers: the `Observer` of this process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from random import getrandbits
from secrets import token_bytes
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from interlock.calls import Call, CallHandler, Outcome
from interlock.connection import Connection
from interlock.context import Context
from interlock.layers.error_types import error_type
from interlock.models import Model, Reply
from interlock.models.model_name import provider_and_model, split_url
from interlock.observing import TraceContext
from interlock.protocol import Request, RequestOptions
from interlock.telemetry import names
from interlock.telemetry.settings import TracingSettings
from interlock.telemetry.span import (
    CLIENT,
    INTERNAL,
    SERVER,
    SpanEvent,
    TraceSpan,
    current,
    new_id,
    open_span,
    running_span,
)
from interlock.text import urls
from interlock.types import RequestId

if TYPE_CHECKING:
    from interlock.client.http_target import HttpTarget
    from interlock.client.reconnecting import ReconnectingConnection
    from interlock.server.answering import Answering

MAX_EVENTS = 32  # of one span
MAX_NAME = 200  # characters of a name that a provider of models states
DRAWN = 64  # traces whose ids are drawn at once
MAX_CALLS = 4_096  # calls whose context is kept, because a later request may continue the call

_NAMED = ("tools/call", "prompts/get")  # methods whose spans have the name of a tool or prompt

_T = TypeVar("_T")


class _Head(Struct):
    is_error: bool | UnsetType | None = field(name="isError", default=UNSET)


class _Named(Struct):
    name: str = ""


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_named = msgspec.json.Decoder(_Named).decode


class Tracer:
    """Makes spans, and gives those that are sampled to an exporter.

    Args:
        settings: The settings of traces.
        export: Called with each sampled span after its end; any thread may call it.
        ambient: The context in which spans begin that have no other parent, such as that of the
            process that started this command; None for none.
    """

    # Whether this class alone decides about spans: all of a trace in this process are sampled, or
    # none, and no other library makes any. The next three are as fast as what they call.
    _is_alone = True
    _around: Callable[..., TraceSpan | None] = staticmethod(running_span)
    _enter: Callable[..., Any] = staticmethod(current.set)
    _leave: Callable[..., None] = staticmethod(current.reset)

    def __init__(
        self,
        settings: TracingSettings,
        export: Callable[[TraceSpan], None],
        ambient: TraceContext | None = None,
    ) -> None:
        self._sampler = settings.sampler
        self._propagates = settings.propagates
        self._max_text = settings.max_text
        self._export = export
        self._ambient = ambient
        self._drawn: list[tuple[str, str, str, bool]] = []
        self._key = token_bytes(32)
        self._calls: OrderedDict[str, TraceContext] = OrderedDict()

    # Spans

    def _start(self, kind: int, name: str, parent: TraceSpan | TraceContext | None) -> TraceSpan:
        if parent is None:
            try:
                trace, id, next_id, sampled = self._drawn.pop()
            except IndexError:
                trace, id, next_id, sampled = self._draw()
            span = TraceSpan(trace, "", "", sampled, kind, name, id, next_id)
        elif isinstance(parent, TraceSpan):
            # All samplers decide alike for the spans of a trace in one process.
            id, parent.next_id = parent.next_id or new_id(), ""
            span = TraceSpan(
                parent.trace, parent.id, parent.trace_state, parent.is_sampled, kind, name, id
            )
            span.names_operation = parent.names_operation
            span.call = parent.call
        else:
            value = parent.parent
            trace, id, flags = value[3:35], value[36:52], int(value[53:55], 16)
            sampled = self._sampler(bool(flags & 1), int(trace, 16))
            span = TraceSpan(trace, id, parent.state, sampled, kind, name)
            span.is_remote_parent = True
        if span.is_sampled:
            span.start = time_ns()
        return span

    def _draw(self) -> tuple[str, str, str, bool]:
        """Return the ids of a new trace, of its first span and of a span below that one.

        The last value is whether the trace is sampled. The method draws the ids of many traces at
        once, because drawing them one by one takes longer.
        """
        ids = getrandbits(256 * DRAWN).to_bytes(32 * DRAWN, "big").hex()
        for at in range(0, 64 * DRAWN, 64):
            trace, id, next_id = ids[at : at + 32], ids[at + 32 : at + 48], ids[at + 48 : at + 64]
            self._drawn.append((trace, id, next_id, self._sampler(None, int(trace, 16))))
        return self._drawn.pop()

    def _begin(self, kind: int, name: str) -> TraceSpan:
        """Start a span below the current one, or below the context of this process."""
        return self._start(kind, name, self._around() or self._ambient)

    def _end(self, span: TraceSpan) -> None:
        span.end = time_ns()
        call = span.call
        if not span.has_call:
            span.call = None
        elif call is not None:
            self._keep(call, span)
        if not span.is_sampled:
            return
        if call is not None:
            span.call_id = call.id
            decision = call.decision
            if decision is None:
                span.of_call = call.entry.server, "", ""
            else:
                span.of_call = call.entry.server, decision.risk, decision.rule
        if self._max_text is not None:
            span.shorten(self._max_text)
        self._export(span)

    def current(self) -> TraceContext | None:
        """Return the context of the current span; None outside of any span."""
        span = current.get()  # as `running_span` returns it, without a call
        return None if span is None or (span.end and not span.has_call) else span.context

    def current_call(self) -> str:
        """Return the id of the call that the current span covers; see `Observer.current_call`."""
        span = running_span()
        return "" if span is None or span.call is None else span.call.id

    def use_key(self, key: bytes) -> None:
        """Hash ids with a key that several processes share; see `Observer.use_key`."""
        self._key = key

    def _hashed(self, id: str) -> str:
        return blake2b(id.encode(), digest_size=8, key=self._key).hexdigest()

    # Requests

    def request(
        self, server: ReconnectingConnection, method: str, params: bytes, options: RequestOptions
    ) -> Coroutine[Any, Any, Raw]:
        """Send a request to a server within a CLIENT span; see `Observer.request`."""
        around = self._around()
        if around is None:
            if method in names.HOUSEKEEPING:
                return server.request(method, params, options, is_observed=True)
        elif self._is_alone and not around.is_sampled:  # the server gets the span around
            context = around.context if self._propagates else None
            options = replace(options, trace=context)
            return server.request(method, params, options, is_observed=True)
        known = method if method in names.METHODS else names.OTHER
        span = self._start(CLIENT, known, around or options.trace or self._ambient)
        if span.is_sampled:
            http = server.http
            address = None if http is None else http.address
            revision, name = server.negotiated.revision, options.name
            if name is None or known not in _NAMED:
                name = ""
            else:
                span.name = f"{known} {name}"
            is_operation = known == "tools/call" and not span.names_operation
            span.of_request = known, name, revision, is_operation, http is not None, address
        options = self._sent_within(span, options)
        return self._send(span, server, method, params, options)

    async def _send(
        self,
        span: TraceSpan,
        server: ReconnectingConnection,
        method: str,
        params: bytes,
        options: RequestOptions,
    ) -> Raw:
        try:
            answer = await server.request(method, params, options, is_observed=True)
            if span.is_sampled and method == "tools/call":
                _note_result(span, answer)
            return answer
        except BaseException as error:
            span.error = error_type(error)
            raise
        finally:
            self._end(span)

    def _sent_within(self, span: TraceSpan, options: RequestOptions) -> RequestOptions:
        """Return the options of a request that carries the context of its span."""
        context, started = None, None
        if self._propagates:
            flags = "01" if span.is_sampled else "00"
            context = TraceContext(f"00-{span.trace}-{span.id}-{flags}", span.trace_state)
        if span.is_sampled:
            started = span.note_id
        return replace(options, trace=context, started=started)

    def handshake(
        self,
        connection: Connection,
        http: HttpTarget | None,
        method: str,
        params: bytes,
        options: RequestOptions,
    ) -> tuple[RequestId, asyncio.Future[Raw]]:
        """Start a request of a handshake, within a span if it causes one; see `Observer`."""
        around = self._around()
        if around is None:
            return connection.start(method, params, options)
        span = self._start(CLIENT, method, around)
        address = None if http is None else http.address
        span.of_request = method, "", "", False, http is not None, address

        def end(answer: asyncio.Future[Raw]) -> None:
            error = asyncio.CancelledError() if answer.cancelled() else answer.exception()
            span.error = "" if error is None else error_type(error)
            self._end(span)

        try:
            started = connection.start(method, params, self._sent_within(span, options))
        except BaseException as error:
            span.error = error_type(error)
            self._end(span)
            raise
        started[1].add_done_callback(end)
        return started

    async def serve(self, server: Answering, request: Request, context: Context) -> bytes:
        """Answer a client's request within a SERVER span; see `Observer.serve`."""
        method = request.method
        if method in names.UNTRACED:
            return await server.answer(request, context)
        given = context.trace if self._is_alone else self._given(context)
        trusted = given is not None and server.trusts_trace(context)
        known = method if method in names.METHODS else names.OTHER
        span = self._start(SERVER, known, given if trusted else None)
        if span.is_sampled:
            around = current.get()  # of a client in this process
            if around is not None and not around.end and around.trace == span.trace:
                span.names_operation = around.names_operation
            if given is not None and not trusted:
                span.links = (given,)
            self._describe_served(span, server, request, context)
        token = self._enter(span)
        try:
            answer = await server.answer(request, context)
            if span.is_sampled and method == "tools/call" and not (span.call or span.error):
                _note_result(span, answer)  # without layers of calls, of which `call` is one
            return answer
        except BaseException as error:
            span.error = span.error or error_type(error)
            raise
        finally:
            self._leave(token)
            self._end(span)

    def _given(self, context: Context) -> TraceContext | None:
        """Return the context that a client sent; None if it sent none."""
        return context.trace

    def _describe_served(
        self, span: TraceSpan, server: Answering, request: Request, context: Context
    ) -> None:
        span.request_id, span.address = request.id, context.address
        if context.session is not None:
            span.own[names.SESSION] = self._hashed(context.session.id)
        # `isinstance(context.link, HasHeaders)` would take several microseconds.
        is_http = hasattr(type(context.link), "headers")
        method, name = span.name, ""
        if method in _NAMED:  # only the names of tools and prompts become part of a span
            tool = context.tool
            if tool is None:
                name = _existing_name(server, request, context)
            elif getattr(tool, "is_known", True):
                name = getattr(context.call_params, "name", "")
            if name:
                span.name = f"{method} {name}"
        is_operation = method == "tools/call" and not span.names_operation
        if is_operation:
            span.names_operation = True
        span.of_request = method, name, context.revision, is_operation, is_http, None

    # Calls

    def call(self, handle: CallHandler) -> CallHandler:
        """Return the outermost layer of calls; see `Observer.call`."""

        async def observe(call: Call) -> Outcome:
            if call.caller.surface != "mcp":
                return await self._execute(handle, call)
            span = current.get()  # as `running_span` returns it, without a call
            if span is None or (span.end and not span.has_call):
                return await handle(call)
            span.call, span.has_call = call, True
            if call.continues:  # of an earlier request
                self._link(span, call.continues)
            try:
                outcome = await handle(call)
            except BaseException as error:
                if not isinstance(error, asyncio.CancelledError):
                    span.error = error_type(error)
                raise
            finally:
                span.has_call = False
                if span.end:
                    span.call = None
            if outcome.is_error:
                span.error = names.TOOL_ERROR
            if outcome.result_type != "complete":
                self._keep(call, span)
            return outcome

        return observe

    async def _execute(self, handle: CallHandler, call: Call) -> Outcome:
        """Make a call of this program within a span of its own, unless it calls no tool."""
        if call.method != "tools/call":
            return await handle(call)
        span = self._begin(INTERNAL, f"{names.EXECUTE_TOOL} {call.name}")
        if span.is_sampled:
            span.own = {
                names.OPERATION: names.EXECUTE_TOOL,
                names.TOOL: call.name,
                names.SURFACE: call.caller.surface,
            }
            if call.tool_call_id:
                span.own[names.TOOL_CALL] = call.tool_call_id[:MAX_NAME]
        span.names_operation = True
        span.call = call
        token = self._enter(span)
        try:
            outcome = await handle(call)
            if outcome.is_error:
                span.error = names.TOOL_ERROR
            return outcome
        except BaseException as error:
            span.error = error_type(error)
            raise
        finally:
            self._leave(token)
            self._end(span)

    def _keep(self, call: Call, span: TraceSpan) -> None:
        """Remember the span of a call that later requests continue."""
        self._calls[call.id] = span.context
        if len(self._calls) > MAX_CALLS:
            self._calls.popitem(last=False)

    def _link(self, span: TraceSpan, call: str) -> None:
        first = self._calls.get(call)
        if first is not None and first.parent[36:52] != span.id:
            span.links = (*span.links, first)

    def refused(self, reason: str, call: str) -> None:
        """Note why the current request is refused; see `Observer.refused`."""
        span = open_span()
        if span is not None:
            span.error = span.error or reason
            span.call_id = call

    def resumed(self, call: str) -> None:
        """Note that the current request continues a call; see `Observer.resumed`."""
        span = open_span()
        if span is not None:
            span.call_id = call
            self._link(span, call)

    @contextmanager
    def waiting(self, reason: str) -> Iterator[None]:
        """Note in the current span that it waits within this context; see `Observer.waiting`."""
        span = open_span()
        if span is None or len(span.events) >= MAX_EVENTS:
            yield
            return
        event = SpanEvent(names.WAITING, time_ns(), {names.REASON: reason})
        span.events = (*span.events, event)
        try:
            yield
        finally:
            if not span.end:  # an exported span must not change
                event.attributes[names.WAITED] = (time_ns() - event.at) // 1_000_000

    # Models and agents

    async def model(
        self, model: Model, events: AsyncGenerator[_T, None]
    ) -> AsyncGenerator[_T, None]:
        """Yield the events of a model's answer within a CLIENT span; see `Observer.model`."""
        provider, name = provider_and_model(model.name)
        url = getattr(model, "url", "") or split_url(model.name)[1]
        span = self._begin(CLIENT, f"{names.CHAT} {name}")
        span.own = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.PROVIDERS.get(provider, provider),
            names.MODEL: name,
        }
        if url:
            span.own[names.SERVER_ADDRESS], span.own[names.SERVER_PORT] = urls.address(url)
        try:
            async for event in events:
                if isinstance(event, Reply):
                    _describe_reply(span, event)
                yield event
        except GeneratorExit:  # the consumer needs no more events
            raise
        except BaseException as error:
            span.error = error_type(error)
            raise
        finally:
            try:
                await events.aclose()
            finally:
                self._end(span)

    async def answer(
        self, name: str, events: AsyncGenerator[_T, None], conversation: Callable[[], str]
    ) -> AsyncGenerator[_T, None]:
        """Yield the events of an agent's answer within a span; see `Observer.answer`.

        The span is current only while the next event is made. If it were current while an event is
        yielded, it would also be current in the code that reads the events.
        """
        span = self._begin(INTERNAL, f"{names.INVOKE_AGENT} {name}")
        span.own = {names.OPERATION: names.INVOKE_AGENT, names.AGENT: name}
        try:
            while True:
                token = self._enter(span)
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    break
                except BaseException as error:
                    span.error = error_type(error)
                    raise
                finally:
                    self._leave(token)
                yield event
        finally:
            token = self._enter(span)
            try:
                await events.aclose()
            finally:
                self._leave(token)
                if span.is_sampled and (id := conversation()):
                    span.own[names.CONVERSATION] = self._hashed(id)
                self._end(span)


def _existing_name(server: Answering, request: Request, context: Context) -> str:
    """Return the tool or prompt of a request; "" if it does not exist for the caller.

    Such a name must not become the name of a span.
    """
    if request.method == "tools/call":
        name: str | None = getattr(context.call_params, "name", None)
        if not isinstance(name, str):
            return ""
        tool = server.find("tools", name, context)
        return name if tool is not None and getattr(tool, "is_known", True) else ""
    with suppress(msgspec.DecodeError, RecursionError):
        name = _decode_named(request.params).name
        return name if server.has_prompt(name, context) else ""
    return ""


def _describe_reply(span: TraceSpan, reply: Reply) -> None:
    attributes, usage = span.own, reply.usage
    attributes[names.FINISH] = (reply.stop_reason,)
    if reply.model:
        attributes[names.ANSWERED_BY] = reply.model[:MAX_NAME]
    for name, number in (
        (names.INPUT_TOKENS, usage.input_tokens),
        (names.OUTPUT_TOKENS, usage.output_tokens),
        (names.CACHE_READ_TOKENS, usage.cached_tokens),
        (names.CACHE_WRITE_TOKENS, usage.cache_written_tokens),
    ):
        if number:
            attributes[name] = number


def _note_result(span: TraceSpan, result: bytes | Raw) -> None:
    try:
        if _decode_head(result).is_error is True:
            span.error = names.TOOL_ERROR
    except (msgspec.DecodeError, RecursionError):
        pass  # the caller reports what is wrong with it
