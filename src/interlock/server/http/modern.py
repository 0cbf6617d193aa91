"""Requests of modern clients: each is independent, checked in a fixed order, and answered.

A request is answered with JSON, in the task that received it. The first notification turns the
response into a stream. So does a long silence, because proxies close silent connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Hashable, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct

from interlock import observing, revisions
from interlock.context import Context
from interlock.errors import (
    AuthRequired,
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
from interlock.server.http import header_checks
from interlock.server.http.http_options import HttpOptions
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import (
    JSON_TYPE,
    ClientGone,
    Header,
    HttpRefusal,
    add_challenge,
    disconnected,
    reply_empty,
)
from interlock.server.http.streams import Budget, EventWriter, event
from interlock.server.request_context import CallParams
from interlock.server.subscribers import end_of_stream
from interlock.server.wire_errors import request_refusal, wire_error
from interlock.types import JsonObject, RequestId

MAX_LISTEN_BYTES = 256 * 1024  # bytes of the params of `subscriptions/listen`

_STATUS = {
    revisions.PARSE_ERROR: 400,
    revisions.INVALID_REQUEST: 400,
    revisions.METHOD_NOT_FOUND: 404,
    revisions.HEADER_MISMATCH: 400,
    revisions.MISSING_CAPABILITY: 400,
    revisions.UNSUPPORTED_VERSION: 400,
}
_EMPTY = Raw(b"{}")
_log = logging.getLogger("interlock.server.http")
_decode_object = msgspec.json.Decoder(JsonObject).decode


class Modern:
    """Answers the requests of modern clients.

    Args:
        server: Answers the requests.
        options: The HTTP options, which limit the streams.
        budget: The limits that all streams of the endpoint share.
    """

    def __init__(self, server: Answering, options: HttpOptions, budget: Budget) -> None:
        self._server = server
        self._find = server.find
        self.budget = budget
        self.json_silence = options.json_silence
        self._offers_listen = options.listen
        self._listening: set[ModernCall] = set()
        self._running: set[ModernCall] = set()
        self._tool_headers = header_checks.ToolHeaderChecks()

    async def serve(
        self,
        http: HttpRequest,
        message: Envelope,
        params: header_checks.AnyParams,
        stated: request_context.Stated | None,
    ) -> None:
        """Answer one message.

        Raises:
            HttpRefusal: The message is not a valid modern request.
        """
        is_odd = message.id is None and not envelope.is_notification(message)
        if message.method is UNSET or is_odd:
            raise HttpRefusal(400, "a request is needed: a method, and an id that is not null")
        if message.id is UNSET or message.id is None:
            _check_notification(http, params)
            await reply_empty(http.send, 202, http.extra)
            return
        raw = _EMPTY if message.params is UNSET else message.params
        request = Request(message.id, message.method, raw)
        call = ModernCall(self, http, request.id)
        try:
            context = self._context(request, params, stated, call)
            if request.method == "subscriptions/listen":
                result = await self._listen(request, context, call)
            else:
                result = await self._answer(request, context, call)
            answer = envelope.RESULT % (encode(request.id), result)
        except ClientGone:
            if call.is_revoked and not call.has_stream:
                text = "the credential is not valid any more"
                raise AuthRequired(text, 401, reason="bad_credential") from None
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
        add_challenge(error, call.http.authenticator)
        code, text, data = wire_error(request.method, error)
        status = 400 if isinstance(error, ParseError) else _STATUS.get(code, 200)
        headers: list[Header] = []
        if (refusal := request_refusal(error)) is not None:
            status, headers = refusal.status, refusal.headers
        await call.finish(status, envelope.error(request.id, code, text, data), headers)

    def _context(
        self,
        request: Request,
        params: header_checks.AnyParams,
        stated: request_context.Stated | None,
        call: ModernCall,
    ) -> Context:
        """Return the context; of several errors, raise the one that conformance tests expect."""
        http = call.http
        if stated is None or not stated.revision:
            raise _fault(http, request, params)
        method, get = request.method, http.headers.get
        name = getattr(params, "name", UNSET) if method == "tools/call" else None
        if (  # the condition of `check`, inlined to save a call for most requests
            http.repeated
            or not isinstance(name, str)
            or name.startswith("=?")
            or not name.isascii()
            or get(b"mcp-name") != name.encode()
            or get(b"mcp-method") != b"tools/call"
            or get(b"mcp-protocol-version") != stated.revision.encode()
        ):
            header_checks.check(http, method, params, stated.revision)
        if request.method not in revisions.FEATURES[stated.revision].methods:
            request_context.check_method(request.method, stated.revision)
        context = Context(
            revision=stated.revision,
            request_id=request.id,
            link=call,
            loop=http.task.get_loop(),
            client_capabilities=stated.client_capabilities,
            client_info=stated.client_info,
            principal=http.principal,
            meta=stated.meta,
            progress_token=stated.progress_token,
            log_level=stated.log_level,
            address=http.address,
            caller_headers=http.caller_headers,
            call_params=params if isinstance(params, CallParams) else None,
            trace=stated.trace,
        )
        if stated.trace is None and b"traceparent" in http.headers:
            context.trace = http.trace
        if request.method == "tools/call" and isinstance(params.name, str):
            context.tool = tool = self._find("tools", params.name, context)
            known = self._tool_headers.unannotated.get(params.name)
            if tool is not None and tool.definition is not known:
                self._tool_headers.check(http, params.name, tool.definition, params.arguments)
        return context

    async def _answer(self, request: Request, context: Context, call: ModernCall) -> bytes:
        http = call.http
        http.on_late = call.linger
        if http.is_late:
            call.linger()
        call.is_running = True
        self._running.add(call)
        try:
            if observing.observer is not None:
                result = await observing.observer.serve(self._server, request, context)
            else:
                result = await self._server.answer(request, context)
            if call.is_over:  # the cancellation came from `ModernCall`, and the handler caught it
                http.task.uncancel()
        except asyncio.CancelledError:
            if not call.is_over:
                call.cut()  # the task was cancelled from outside, so the stream must be ended here
                raise
            http.task.uncancel()
            await call.end_stream()
            raise ClientGone from None
        finally:
            context.finished = True
            call.is_running = False
            self._running.discard(call)
            http.on_late = None
            if http.is_late:
                call.stop_watching()
        if not self._offers_listen and request.method == "server/discover":
            return _without_changes(result)
        return result

    async def _listen(self, request: Request, context: Context, call: ModernCall) -> bytes:
        if not self._offers_listen:
            raise RemoteError(revisions.METHOD_NOT_FOUND, "subscriptions are switched off")
        if not call.http.takes_stream:
            raise HttpRefusal(406, "subscriptions/listen needs Accept: text/event-stream")
        size = memoryview(request.params).nbytes
        if size > MAX_LISTEN_BYTES:  # the params are kept in memory as long as the stream is open
            raise HttpRefusal(413, f"params too large ({size} bytes, limit {MAX_LISTEN_BYTES})")
        with self.budget.stream(call.http.principal):
            self._listening.add(call)
            try:
                return await self._answer(request, context, call)
            finally:
                self._listening.discard(call)

    def end_credentials(self, keys: Collection[str]) -> None:
        for call in list(self._running):
            principal = call.http.principal
            if principal is not None and principal.ends_with(keys):
                call.revoke()

    def close(self) -> None:
        """End the streams of subscribers with the final messages from the specification."""
        for call in list(self._listening):
            call.end_subscription()


class ModernCall(Struct, eq=False):
    """A modern request and the way back to its client: the `BackChannel` of its handler."""

    _modern: Modern
    http: HttpRequest
    id: RequestId
    is_over: bool = False  # whether the client has disconnected, or its subscription has ended
    is_running: bool = False
    is_revoked: bool = False
    _writer: EventWriter | None = None
    _sending: asyncio.Task[None] | None = None
    _watch: asyncio.Task[None] | None = None
    _silence: asyncio.TimerHandle | None = None

    # BackChannel

    @property
    def caller(self) -> Hashable:
        """The key for fair scheduling: the principal, or the client's address, or this request."""
        if self.http.principal is not None:
            return self.http.principal.owner
        return self.http.address or self

    @property
    def headers(self) -> Sequence[Header]:
        found: Sequence[Header] = self.http.scope["headers"]
        return found

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification, which turns the response into a stream."""
        writer = self._stream()
        if writer is not None:
            writer.put(event(envelope.notification(method, params)))

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:  # noqa: ARG002
        """Raise an error: only the answer to a request can ask a modern client."""
        raise CapabilityError(f"{method}: a modern client answers no requests")

    def close_stream(self, retry_ms: int) -> None:
        """Do nothing: a modern client does not reconnect to continue a stream."""

    # Slow handlers

    def linger(self) -> None:
        """Start watching for a disconnect, because the handler is slow."""
        loop = self.http.task.get_loop()
        self._watch = loop.create_task(disconnected(self.http.receive))
        self._watch.add_done_callback(self._gone)
        self._silence = loop.call_later(self._modern.json_silence, self._stream)

    def stop_watching(self) -> None:
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
        # Once the handler has ended, the task does other work of the host, so do not cancel it.
        if self.is_running and not self.is_over:
            self.is_over = True
            self.http.task.cancel()

    # Replying

    def _stream(self) -> EventWriter | None:
        if self._writer is None and self.http.takes_stream and not self.is_over:
            self._writer = self._modern.budget.writer(self.http.send, self.http.extra)
            self._sending = self.http.task.get_loop().create_task(self._writer.run())
            self._sending.add_done_callback(self._sent)
        return self._writer

    def _sent(self, sending: asyncio.Task[None]) -> None:
        if not sending.cancelled() and sending.exception() is not None:
            _log.error("writing a stream failed", exc_info=sending.exception())
        if self._writer is not None and self._writer.was_cut:
            self._end()  # the client has disconnected or does not read the answer

    async def finish(self, status: int, body: bytes, headers: Sequence[Header] = ()) -> None:
        """Send the answer as JSON, or as the last event if the response is already a stream."""
        http = self.http
        if self._writer is None and http.takes_json:
            is_usual = status == 200 and not headers and not http.extra
            if is_usual and http.at_once and http.at_once(http.scope, body):
                return
            # The code of `reply`, inlined to save a coroutine for each request.
            length = (b"content-length", b"%d" % len(body))
            start = {
                "type": "http.response.start",
                "status": status,
                "headers": [JSON_TYPE, length, *headers, *http.extra],
            }
            await http.send(start)
            await http.send({"type": "http.response.body", "body": body})
            return
        writer = self._stream()
        if writer is not None:
            try:
                writer.put(event(body))
                await self.end_stream()
            except MemoryError:
                self.cut()  # end the stream without an answer, which the client detects

    async def end_stream(self) -> None:
        """End the stream, if there is one, and wait until everything has been sent."""
        if self._writer is not None and self._sending is not None:
            self._writer.end()
            await self._sending

    def cut(self) -> None:
        """Cut off the stream, if there is one, without sending an answer."""
        if self._writer is not None:
            self._writer.cut()

    @property
    def has_stream(self) -> bool:
        return self._writer is not None

    def revoke(self) -> None:
        """Cancel the handler, because the request's credential is no longer valid."""
        self.is_revoked = True
        self.cut()
        self._end()

    def end_subscription(self) -> None:
        """End a subscription with the final messages that the specification requires."""
        writer = self._stream()
        if writer is not None:
            cancelled, result = end_of_stream(self.id)
            writer.put(event(envelope.notification("notifications/cancelled", cancelled)))
            writer.put(event(envelope.result(self.id, result)))
            writer.end()
        self._end()


def _meta_of(params: header_checks.AnyParams) -> JsonObject:
    if params.meta is UNSET:
        return {}
    try:
        return _decode_object(params.meta)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ParseError(f"_meta: {error}", revisions.INVALID_PARAMS) from None


def _fault(http: HttpRequest, request: Request, params: header_checks.AnyParams) -> InterlockError:
    """Return the error of a request with several faults, as the conformance tests expect it."""
    meta = _meta_of(params)
    try:
        if revisions.VERSION_KEY not in meta:  # a legacy request, whose header is the fault
            header_checks.check_version(http)
        request_context.check_modern(meta)
        header_checks.check(http, request.method, params, meta[revisions.VERSION_KEY])
        request_context.read_modern(meta)
    except HttpRefusal as refusal:
        return refusal
    except InterlockError as error:
        code, text, data = to_wire(error)
        return HttpRefusal(_STATUS.get(code, 400), text, code, data=data)
    raise AssertionError("a request with valid metadata has no fault")


def _check_notification(http: HttpRequest, params: header_checks.AnyParams) -> None:
    meta = _meta_of(params)
    if revisions.VERSION_KEY not in meta:
        header_checks.check_version(http)
    version = meta.get(revisions.VERSION_KEY, http.header(b"mcp-protocol-version"))
    if version not in revisions.MODERN:
        raise HttpRefusal(
            400,
            "the protocol revision is not supported",
            revisions.UNSUPPORTED_VERSION,
            data={"supported": list(revisions.MODERN), "requested": version},
        )


def _without_changes(discovered: bytes) -> bytes:
    """Remove the capabilities that require `subscriptions/listen`."""
    result: JsonObject = msgspec.json.decode(discovered)
    for each in result["capabilities"].values():
        for promise in ("listChanged", "subscribe"):
            each.pop(promise, None)
    return encode(result)
