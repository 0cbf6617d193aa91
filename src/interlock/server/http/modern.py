"""Requests of the modern era: each one for itself, checked in a fixed order, then answered.

A request is answered in the task that brought it, as JSON. What it tells on its way turns the
reply into a stream; so does a long silence, as connections are kept alive by what is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Sequence

import msgspec
from msgspec import UNSET, Raw

from interlock import revisions
from interlock.context import Context
from interlock.errors import (
    AuthError,
    CapabilityError,
    InterlockError,
    ParseError,
    RemoteError,
    to_wire,
)
from interlock.protocol import Request, envelope
from interlock.protocol.envelope import Envelope, encode
from interlock.server import request_context
from interlock.server.answering import Answering
from interlock.server.catalogue import input_schema
from interlock.server.http import header_checks
from interlock.server.http.options import HttpOptions
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import ClientGone, Header, HttpRefusal, reply, reply_empty
from interlock.server.http.streams import Budget, EventWriter, event, gone
from interlock.server.subscribers import end_of_stream
from interlock.server.wire_errors import wire_error
from interlock.types import JsonObject, RequestId

MAX_LISTEN_BYTES = 256 * 1024  # of the parameters of `subscriptions/listen`

_STATUS = {
    revisions.PARSE_ERROR: 400,
    revisions.INVALID_REQUEST: 400,
    revisions.METHOD_NOT_FOUND: 404,
    revisions.HEADER_MISMATCH: 400,
    revisions.MISSING_CAPABILITY: 400,
    revisions.UNSUPPORTED_VERSION: 400,
}
_EMPTY = Raw(b"{}")
_NOTHING = request_context.Stated("", {})
_log = logging.getLogger("interlock.server.http")


_decode_object = msgspec.json.Decoder(JsonObject).decode


def stated_by(params: header_checks.Params) -> request_context.Stated | None:
    """Read what a message states about itself; None when a modern one lacks something."""
    if params.meta is UNSET:
        return _NOTHING
    try:
        return request_context.stated_in(bytes(params.meta))
    except InterlockError:
        return None


def is_modern(stated: request_context.Stated | None, exchange: HttpRequest) -> bool:
    """Tell the era of a message: by its body, and only then by its header."""
    if stated is None or stated.revision:
        return True
    version = exchange.header(b"mcp-protocol-version")
    return version is not None and version not in revisions.LEGACY


def _meta_of(params: header_checks.Params) -> JsonObject:
    if params.meta is UNSET:
        return {}
    try:
        return _decode_object(params.meta)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ParseError(f"_meta: {error}", revisions.INVALID_PARAMS) from None


class Modern:
    """Answers modern requests.

    Args:
        server: Whose answers.
        options: How.
        budget: What all streams may take.
    """

    def __init__(self, server: Answering, options: HttpOptions, budget: Budget) -> None:
        self._server = server
        self._budget = budget
        self.dropped = server.dropped
        self.json_silence = options.json_silence
        self.keep_alive = options.keep_alive
        self._offers_listen = options.listen
        self._listening: set[ModernCall] = set()
        self._tool_headers = header_checks.ExpectedHeaders()

    async def serve(
        self,
        exchange: HttpRequest,
        message: Envelope,
        params: header_checks.Params,
        stated: request_context.Stated | None,
    ) -> None:
        """Answer one message.

        Raises:
            HttpRefusal: It gets no answer.
        """
        if message.method is UNSET or message.id is None:
            raise HttpRefusal(400, "a request is needed: a method, and an id that is not null")
        if message.id is UNSET:
            _check_notification(exchange, params)
            await reply_empty(exchange.send, 202, exchange.extra)
            return
        raw = _EMPTY if message.params is UNSET else message.params
        request = Request(message.id, message.method, raw)
        call = ModernCall(self, exchange, request.id)
        try:
            context = self._context(request, params, stated, call)
            answer = envelope.result(request.id, await self._answer(request, context, call))
        except ClientGone:
            return
        except asyncio.CancelledError:
            raise
        except HttpRefusal as refusal:
            refusal.id = request.id
            raise
        except BaseException as error:
            await self._fail(call, request, error)
        else:
            await call.finish(200, answer)

    async def _fail(self, call: ModernCall, request: Request, error: BaseException) -> None:
        code, text, data = wire_error(request.method, error)
        status = 400 if isinstance(error, ParseError) else _STATUS.get(code, 200)
        headers: list[Header] = []
        if isinstance(error, AuthError):  # a tool needs more than the token grants
            status = error.status
            headers = [(b"www-authenticate", error.challenge.encode())] if error.challenge else []
        await call.finish(status, envelope.error(request.id, code, text, data), headers)

    def _context(
        self,
        request: Request,
        params: header_checks.Params,
        stated: request_context.Stated | None,
        call: ModernCall,
    ) -> Context:
        """Check in the order that the specification's tests fix, and make the context."""
        exchange = call.exchange
        if stated is None or not stated.revision:
            raise _fault(exchange, request, params)
        header_checks.check(exchange, request.method, params, stated.revision)
        request_context.check_method(request.method, stated.revision)
        context = Context(
            revision=stated.revision,
            request_id=request.id,
            link=call,
            loop=asyncio.get_running_loop(),
            client_capabilities=stated.client_capabilities,
            client_info=stated.client_info,
            principal=exchange.principal,
            meta=stated.meta,
            progress_token=stated.progress_token,
            log_level=stated.log_level,
        )
        if request.method == "tools/call" and isinstance(params.name, str):
            self._check_tool_headers(params.name, params, exchange, context)
        return context

    def _check_tool_headers(
        self, name: str, params: header_checks.Params, exchange: HttpRequest, context: Context
    ) -> None:
        tool = self._server.find("tools", name, context)
        if tool is None:
            return
        expected = self._tool_headers.of(name, input_schema(tool.definition))
        if expected:
            header_checks.check_params(exchange, expected, params.arguments)

    async def _answer(self, request: Request, context: Context, call: ModernCall) -> bytes:
        if request.method == "subscriptions/listen" and not call.is_listening:
            return await self._listen(request, context, call)
        task = call.exchange.task
        call.exchange.when_late(call.linger)
        call.is_running = True
        try:
            result = await self._server.answer(request, context)
        except asyncio.CancelledError:
            if not call.is_over:
                call.cut()  # by the host, and nobody else would end the stream
                raise
            task.uncancel()
            await call.leave()
            raise ClientGone from None
        finally:
            context.finished = True
            call.is_running = False
            call.exchange.when_late(None)
            call.stop_watching()
        if not self._offers_listen and request.method == "server/discover":
            return _without_changes(result)
        return result

    async def _listen(self, request: Request, context: Context, call: ModernCall) -> bytes:
        if not self._offers_listen:
            raise RemoteError(revisions.METHOD_NOT_FOUND, "subscriptions are switched off")
        if not call.accepts_stream:
            raise HttpRefusal(406, "subscriptions/listen needs Accept: text/event-stream")
        size = memoryview(request.params).nbytes
        if size > MAX_LISTEN_BYTES:  # kept as long as the stream
            raise HttpRefusal(413, f"params too large ({size} bytes, limit {MAX_LISTEN_BYTES})")
        with self._budget.stream(call.exchange.principal):
            self._listening.add(call)
            call.is_listening = True
            try:
                return await self._answer(request, context, call)
            finally:
                self._listening.discard(call)

    def close(self) -> None:
        """End the streams of those who listen, in the words that they expect."""
        for call in list(self._listening):
            call.end_subscription()


class ModernCall:
    """One request and its way back. Also the `BackChannel` of its handler."""

    __slots__ = (
        "_modern", "_outlet", "_silence", "_watch", "_writer", "exchange", "id",
        "is_listening", "is_over", "is_running",
    )  # fmt: skip

    def __init__(self, modern: Modern, exchange: HttpRequest, id: RequestId) -> None:
        self._modern = modern
        self.exchange = exchange
        self.id = id
        self.is_over = False  # the client has gone, or is told to go
        self.is_listening = False
        self.is_running = False
        self._outlet: EventWriter | None = None
        self._writer: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._silence: asyncio.TimerHandle | None = None

    @property
    def accepts_stream(self) -> bool:
        """Whether the client takes more than the answer."""
        return self.exchange.accepts("text/event-stream")

    # BackChannel

    @property
    def caller(self) -> Hashable:
        """The client's address; a request without one stands for itself."""
        client = self.exchange.scope.get("client")
        return client[0] if client else self

    def notify(self, method: str, params: bytes) -> None:
        """Tell the client; the reply is a stream from now on."""
        outlet = self._stream()
        if outlet is not None:
            outlet.put(event(envelope.notification(method, params)))

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:  # noqa: ARG002
        """Refuse: a modern client is asked by the answer to its request."""
        raise CapabilityError(f"{method}: a modern client answers no requests")

    def close_stream(self, retry_ms: int) -> None:
        """Do nothing: a modern client does not come back for the rest."""

    # Taking long

    def linger(self) -> None:
        """Watch the client, now that the handler is not a quick one."""
        loop = asyncio.get_running_loop()
        self._watch = loop.create_task(gone(self.exchange.receive))
        self._watch.add_done_callback(self._gone)
        self._silence = loop.call_later(self._modern.json_silence, self._stream)

    def stop_watching(self) -> None:
        """Let it be; the handler has ended."""
        if self._watch is not None:
            self._watch.remove_done_callback(self._gone)
            self._watch.cancel()
        if self._silence is not None:
            self._silence.cancel()

    def _gone(self, watch: asyncio.Task[None]) -> None:
        if not watch.cancelled() and watch.exception() is not None:
            _log.error("watching a client failed", exc_info=watch.exception())
        self.cut()
        self._end()

    def _end(self) -> None:
        # What comes after the handler is not cancelled: the task belongs to the host then.
        if self.is_running and not self.is_over:
            self.is_over = True
            self.exchange.task.cancel()

    # Replying

    def _stream(self) -> EventWriter | None:
        if self._outlet is None and self.accepts_stream and not self.is_over:
            self._outlet = EventWriter(
                self.exchange.send,
                self.exchange.extra,
                keep_alive=self._modern.keep_alive,
                dropped=self._modern.dropped,
            )
            self._writer = asyncio.get_running_loop().create_task(self._outlet.run())
            self._writer.add_done_callback(self._written)
        return self._outlet

    def _written(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled() and writer.exception() is not None:
            _log.error("writing a stream failed", exc_info=writer.exception())
        if self._outlet is not None and self._outlet.was_cut:
            self._end()  # nobody reads, so nobody waits

    async def finish(self, status: int, body: bytes, headers: Sequence[Header] = ()) -> None:
        """Send the answer, in whichever form the reply has begun."""
        if self._outlet is not None:
            try:
                self._outlet.put(event(body))
                await self.leave()
            except MemoryError:
                self.cut()  # by which the client learns that there is no answer
        elif not self.exchange.accepts("application/json") and self.accepts_stream:
            self._stream()
            await self.finish(status, body)
        else:
            await reply(self.exchange.send, status, body, [*headers, *self.exchange.extra])

    async def leave(self) -> None:
        """End the stream, if there is one, and wait until it has been sent."""
        if self._outlet is not None and self._writer is not None:
            self._outlet.end()
            await self._writer

    def cut(self) -> None:
        """End the stream, if there is one, without an answer."""
        if self._outlet is not None:
            self._outlet.cut()

    def end_subscription(self) -> None:
        """Tell a client that listens that nothing more comes."""
        outlet = self._stream()
        if outlet is not None:
            cancelled, result = end_of_stream(self.id)
            outlet.put(event(envelope.notification("notifications/cancelled", cancelled)))
            outlet.put(event(envelope.result(self.id, result)))
            outlet.end()
        self._end()


def _fault(exchange: HttpRequest, request: Request, params: header_checks.Params) -> InterlockError:
    """Find which of several faults the client is told."""
    meta = _meta_of(params)
    try:
        request_context.check_modern(meta)
        header_checks.check(exchange, request.method, params, meta[revisions.VERSION_KEY])
        request_context.read_modern(meta)
    except HttpRefusal as refusal:
        return refusal
    except InterlockError as error:
        code, text, data = to_wire(error)
        return HttpRefusal(_STATUS.get(code, 400), text, code, data=data)
    raise AssertionError("there is a fault, or we would not look for one")


def _check_notification(exchange: HttpRequest, params: header_checks.Params) -> None:
    meta = _meta_of(params)
    version = meta.get(revisions.VERSION_KEY, exchange.header(b"mcp-protocol-version"))
    if version not in revisions.MODERN:
        raise HttpRefusal(
            400,
            "the protocol revision is not supported",
            revisions.UNSUPPORTED_VERSION,
            data={"supported": list(revisions.MODERN), "requested": version},
        )


def _without_changes(discovered: bytes) -> bytes:
    """Take back the promise to tell of changes."""
    result: JsonObject = msgspec.json.decode(discovered)
    for each in result["capabilities"].values():
        for promise in ("listChanged", "subscribe"):
            each.pop(promise, None)
    return encode(result)
