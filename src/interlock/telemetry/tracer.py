"""Makes the spans of requests, calls, models and answers: the `Observer` of this process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
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
    SharedAttributes,
    SpanEvent,
    TraceSpan,
    Value,
    current,
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
MAX_SHARED = 2_048  # sets of attributes that are kept, because later spans share them
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
        self._key = token_bytes(32)
        self._calls: OrderedDict[str, TraceContext] = OrderedDict()
        self._of_request = lru_cache(MAX_SHARED)(self._make_of_request)
        self._of_call = lru_cache(MAX_SHARED)(self._make_of_call)

    # Spans

    def _start(self, kind: int, name: str, parent: TraceSpan | TraceContext | None) -> TraceSpan:
        if isinstance(parent, TraceSpan):
            # All samplers decide alike for the spans of a trace in one process.
            span = TraceSpan(
                parent.trace, parent.id, parent.trace_state, parent.is_sampled, kind, name
            )
            span.names_operation = parent.names_operation
            span.call = parent.call
        elif parent is None:
            number = getrandbits(192)
            sampled = self._sampler(None, number >> 64)
            ids = number.to_bytes(24, "big").hex()
            span = TraceSpan(ids[:32], "", "", sampled, kind, name, ids[32:])
        else:
            value = parent.parent
            trace, id, flags = value[3:35], value[36:52], int(value[53:55], 16)
            sampled = self._sampler(bool(flags & 1), int(trace, 16))
            span = TraceSpan(trace, id, parent.state, sampled, kind, name)
            span.is_remote_parent = True
        if span.is_sampled:
            span.start = time_ns()
        return span

    def _begin(self, kind: int, name: str) -> TraceSpan:
        """Start a span below the current one, or below the context of this process."""
        return self._start(kind, name, self._around() or self._ambient)

    def _around(self) -> TraceSpan | None:
        """Return the span within which the next one begins; None outside of any span."""
        return running_span()

    def _enter(self, span: TraceSpan) -> Any:
        """Make a span current; return a token for `_leave`."""
        return current.set(span)

    def _leave(self, token: Any) -> None:
        current.reset(token)

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
            span.own[names.CALL] = call.id
            decision = call.decision
            risk, rule = ("", "") if decision is None else (decision.risk, decision.rule)
            span.of_call = self._of_call(call.entry.server, risk, rule)
        if self._max_text is not None:
            span.own = self._shortened(span.own)
        self._export(span)

    # Attributes

    def _make_of_request(
        self,
        method: str,
        name: str,
        revision: str,
        is_operation: bool,
        is_http: bool,
        address: tuple[str, int] | None,
    ) -> SharedAttributes:
        """Return the attributes that all spans of such a request have.

        Args:
            method: The method.
            name: The tool or prompt; "" for neither.
            revision: The protocol's revision; "" if it is not known yet.
            is_operation: Whether the span counts as the operation of its call.
            is_http: Whether the request is sent over HTTP.
            address: The server's host and port; None if it is this process, or a child of it.
        """
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
        return SharedAttributes(self._shortened(found))

    def _make_of_call(self, server: str, risk: str, rule: str) -> SharedAttributes:
        """Return the attributes that the spans of all such calls have; "" for an unknown value."""
        found = ((names.SERVER, server), (names.RISK, risk), (names.RULE, rule))
        return SharedAttributes(self._shortened({key: each for key, each in found if each}))

    def _shortened(self, attributes: dict[str, Value]) -> dict[str, Value]:
        most = self._max_text
        return {
            key: value[:most] if isinstance(value, str) else value
            for key, value in attributes.items()
        }

    def _describe_request(
        self,
        span: TraceSpan,
        name: str | None,
        revision: str,
        *,
        is_http: bool,
        address: tuple[str, int] | None = None,
    ) -> None:
        """Describe the request of a span that is named by its method; `name` is as in the params.

        Only the names of tools and prompts become part of a span.
        """
        method = span.name
        if name is None or method not in _NAMED:
            name = ""
        else:
            span.name = f"{method} {name}"
        is_operation = method == "tools/call" and not span.names_operation
        if is_operation:
            span.names_operation = True
        span.of_request = self._of_request(method, name, revision, is_operation, is_http, address)

    def current(self) -> TraceContext | None:
        """Return the context of the current span; None outside of any span."""
        span = running_span()
        return None if span is None else span.context

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

    async def request(
        self, server: ReconnectingConnection, method: str, params: bytes, options: RequestOptions
    ) -> Raw:
        """Send a request to a server within a CLIENT span; see `Observer.request`."""
        around = self._around()
        if around is None and method in names.HOUSEKEEPING:
            return await server.request(method, params, options, is_observed=True)
        span = self._start(CLIENT, _known(method), around or options.trace or self._ambient)
        options = self._sent_within(span, options)
        if span.is_sampled:
            self._describe_sent(span, options.name, server.negotiated.revision, server.http)
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

    def _describe_sent(
        self, span: TraceSpan, name: str | None, revision: str, http: HttpTarget | None
    ) -> None:
        address = None if http is None else http.address
        self._describe_request(span, name, revision, is_http=http is not None, address=address)

    def _sent_within(self, span: TraceSpan, options: RequestOptions) -> RequestOptions:
        """Return the options of a request that carries the context of its span."""
        context = span.context if self._propagates else None
        started = partial(_note_id, span) if span.is_sampled else None
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
        span = self._start(CLIENT, _known(method), around)
        if span.is_sampled:
            self._describe_sent(span, None, "", http)

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
        method, given = request.method, self._given(context)
        if method in names.UNTRACED:
            return await server.answer(request, context)
        trusted = given is not None and server.trusts_trace(context)
        span = self._start(SERVER, _known(method), given if trusted else None)
        around = running_span()  # of a client in this process
        if around is not None and around.trace == span.trace:
            span.names_operation = around.names_operation
        if span.is_sampled:
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
        own = span.own
        own[names.REQUEST_ID] = str(request.id)[:64]
        if context.address:
            own[names.CLIENT_ADDRESS] = context.address
        if context.session is not None:
            own[names.SESSION] = self._hashed(context.session.id)
        # `isinstance(context.link, HasHeaders)` would take several microseconds.
        is_http = hasattr(context.link, "headers")
        name = _existing_name(server, request, context)
        self._describe_request(span, name, context.revision, is_http=is_http)

    # Calls

    def call(self, handle: CallHandler) -> CallHandler:
        """Return the outermost layer of calls; see `Observer.call`."""

        async def observe(call: Call) -> Outcome:
            if call.caller.surface != "mcp":
                return await self._execute(handle, call)
            span = running_span()
            if span is None:
                return await handle(call)
            self._cover(span, call)
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

    def _cover(self, span: TraceSpan, call: Call) -> None:
        """Note that a SERVER span covers a call, which an earlier request may have begun."""
        span.call, span.has_call = call, True
        if call.continues:
            self._link(span, call.continues)

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
            span.own[names.CALL] = call

    def resumed(self, call: str) -> None:
        """Note that the current request continues a call; see `Observer.resumed`."""
        span = open_span()
        if span is not None:
            span.own[names.CALL] = call
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


def _known(method: str) -> str:
    return method if method in names.METHODS else names.OTHER


def _existing_name(server: Answering, request: Request, context: Context) -> str | None:
    """Return the tool or prompt of a request; None if it does not exist for the caller.

    Such a name must not become the name of a span.
    """
    if request.method == "tools/call":
        name = getattr(context.call_params, "name", None)
        if isinstance(name, str):
            tool = context.tool or server.find("tools", name, context)
            return name if tool is not None and getattr(tool, "is_known", True) else None
    elif request.method == "prompts/get":
        with suppress(msgspec.DecodeError, RecursionError):
            name = _decode_named(request.params).name
            return name if server.has_prompt(name, context) else None
    return None


def _note_id(span: TraceSpan, id: int) -> None:
    span.own[names.REQUEST_ID] = str(id)


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
