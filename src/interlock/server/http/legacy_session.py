"""One session of a legacy client over HTTP: its state, running requests and streams."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Hashable, Sequence

import msgspec
from msgspec import UNSET, Raw, Struct

from interlock import observing, revisions
from interlock.auth import Authenticator
from interlock.auth.principal import Principal
from interlock.context import Context, Session
from interlock.errors import (
    CapabilityError,
    ConnectionClosed,
    InterlockError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    to_wire,
)
from interlock.observing import TraceContext
from interlock.protocol import Cancellation, Request, envelope
from interlock.protocol.envelope import Envelope, encode
from interlock.protocol.leniency import decode_error, decode_with_id
from interlock.revisions import INTERNAL_ERROR
from interlock.server import request_context
from interlock.server.answering import Answering
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import Header, HttpRefusal, add_challenge
from interlock.server.http.streams import Budget, ReplayStream, too_large_to_send
from interlock.server.request_context import CallParams
from interlock.server.subscribers import for_session
from interlock.server.wire_errors import RequestRefusal, request_refusal, wire_error
from interlock.text.redaction import NO_VALUES, HiddenValues
from interlock.types import CancelledParams, RequestId

MAX_RUNNING = 200  # requests of one session that run at the same time
MAX_ASKED = 200  # unanswered requests to one client
MAX_STREAMS = 64  # streams of one session that are kept because the client may reconnect

_PRIMING = "2025-11-25"  # the first revision whose clients accept an event without data
_log = logging.getLogger("interlock.server.http")


class LegacySession:
    """A session of one legacy client, which begins with `initialize`.

    Args:
        server: Answers the client's requests.
        principal: The principal that owns the session.
        budget: The limits that all streams of the endpoint share.
        single: Whether one stream carries all messages and ends with the session, as in the
            HTTP+SSE transport of 2024-11-05.
        stateless: Whether the session has one request only, so that no other can find it.
        restored: The state of a session that another process has begun; None for a new session.
        first: The number before the first event, stream and question. In a restored session, it
            exceeds all numbers that the client has seen, because late messages of the client may
            contain them.
    """

    def __init__(
        self,
        server: Answering,
        principal: Principal | None,
        budget: Budget,
        *,
        single: bool = False,
        stateless: bool = False,
        restored: Session | None = None,
        first: int = 0,
    ) -> None:
        self.id = secrets.token_urlsafe(32)
        self.principal = principal
        self.session = restored or Session(is_stateless=stateless)
        self.used = 0.0  # by the monotonic clock of `Sessions`
        self._server = server
        self._budget = budget
        self.is_single = single
        self.standalone = ReplayStream(0, budget, numbered=not single)
        self.standalone.last = self.standalone.seen = first
        self._streams: OrderedDict[int, ReplayStream] = OrderedDict()
        self._last_stream = self._last_asked = first
        self._running: dict[RequestId, LegacyCall] = {}
        self._asked: dict[int, asyncio.Future[Raw]] = {}
        self._subscriber = for_session(self.session, self._notify, principal)
        self.is_closed = False
        self.is_draining = False

    @property
    def is_busy(self) -> bool:
        """Whether a request is running, or the client is reading a stream."""
        return (
            bool(self._running)
            or self.standalone.has_reader
            or any(each.has_reader for each in self._streams.values())
        )

    @property
    def primes(self) -> bool:
        """Whether the client accepts an event without data; the event's id lets it reconnect."""
        session = self.session
        return not session.is_stateless and revisions.at_least(session.revision, _PRIMING)

    def use(self, principal: Principal | None) -> None:
        """Replace the session's principal with the current request's, whose rights may differ."""
        self.principal = self._subscriber.principal = principal

    def drain(self) -> bool:
        """End the standalone stream once no call needs it. Return whether a call is running."""
        self.is_draining = True
        if not self.is_single or not self._running:
            self.standalone.end()
        return bool(self._running)

    # Requests

    def begin(self, id: RequestId, call: LegacyCall) -> None:
        """Add a request to the running ones.

        Raises:
            HttpRefusal: 400 or 503: the request cannot run now.
        """
        if id in self._running:
            raise HttpRefusal(400, "a request with this id is still running")
        if len(self._running) >= MAX_RUNNING:
            text = f"too many requests of one session at once (limit {MAX_RUNNING})"
            raise HttpRefusal(503, text, INTERNAL_ERROR)
        self._running[id] = call

    def is_running(self, call: LegacyCall) -> bool:
        return call in self._running.values()

    def settle(self) -> None:
        """End the standalone stream of a draining session after its last request."""
        if self.is_draining and not self._running:
            self.standalone.end()

    async def answer(self, request: Request, call: LegacyCall) -> bytes:
        """Answer a request, and remove it from the running ones; errors become responses."""
        context: Context | None = None
        try:
            stated = request_context.stated_by(request) if call.stated is None else call.stated
            context = request_context.legacy_context(
                request, stated.meta, call, self.session, self.principal, call.params
            )
            context.address, context.caller_headers = call.address, call.caller_headers
            context.trace = stated.trace or call.trace
            if observing.observer is not None:
                answer = await observing.observer.serve(self._server, request, context)
            else:
                answer = await self._server.answer(request, context)
            return envelope.RESULT % (encode(request.id), answer)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            add_challenge(error, call.authenticator)
            call.refusal = request_refusal(error)
            return envelope.error(request.id, *wire_error(request.method, error))
        finally:
            if context is not None:
                context.finished = True
            if self._running.get(request.id) is call:
                del self._running[request.id]

    def start(
        self, requests: list[Request], http: HttpRequest, *, can_stream: bool
    ) -> ReplayStream:
        """Answer requests in separate tasks; return their stream, which ends after the last answer.

        Args:
            requests: At least one request.
            http: The HTTP request that contained them.
            can_stream: Whether the client also reads messages that are not answers.

        Raises:
            HttpRefusal: 400 or 503: one of the requests cannot run now, so none is started.
        """
        stream = self.standalone if self.is_single else self.new_stream(is_batch=True)
        calls = {
            each.id: LegacyCall(
                self,
                stream,
                can_stream,
                address=http.address,
                caller_headers=http.caller_headers,
                headers=http.scope["headers"],
                trace=http.trace,
            )
            for each in requests
        }
        if len(calls) < len(requests):
            raise HttpRefusal(400, "two requests have the same id")
        begun: list[RequestId] = []
        try:
            for id, call in calls.items():
                self.begin(id, call)
                begun.append(id)
        except HttpRefusal:
            for id in begun:
                del self._running[id]
            raise
        left = len(requests)

        def ended(_task: asyncio.Task[None]) -> None:
            nonlocal left
            left -= 1
            if not left and not self.is_single:
                stream.end()

        for request in requests:
            call = calls[request.id]
            call.task = asyncio.create_task(self._answer(request, call, stream))
            call.task.add_done_callback(ended)
        return stream

    async def _answer(self, request: Request, call: LegacyCall, stream: ReplayStream) -> None:
        try:
            self.put_answer(stream, request.id, await self.answer(request, call))
        except MemoryError as error:  # raised by `answer`, which then has not removed the request
            self._running.pop(request.id, None)
            answer = envelope.error(request.id, *wire_error(request.method, error))
            self.put_answer(stream, request.id, answer)
        finally:
            self.settle()

    def put_answer(self, stream: ReplayStream, id: RequestId, answer: bytes) -> None:
        """Add an answer to a stream; if memory is full, add an error instead."""
        try:
            stream.put(answer, is_answer=True)
        except MemoryError:
            answer = envelope.error(id, *to_wire(too_large_to_send()))
            stream.put(answer, is_answer=True)

    def forget(self, stream: ReplayStream) -> None:
        """Drop a stream that its client need not reconnect to."""
        stream.clear()
        self._streams.pop(stream.number, None)

    def new_stream(self, *, is_batch: bool = False) -> ReplayStream:
        """Return a new stream of the session, for the replies to a request or a batch."""
        self._last_stream += 1
        stream = ReplayStream(
            self._last_stream,
            self._budget,
            numbered=not self.session.is_stateless,
            primed=self.primes,
            is_batch=is_batch,
        )
        self.standalone.primed = self.primes
        self._streams[stream.number] = stream
        if len(self._streams) > MAX_STREAMS:
            for each in list(self._streams.values()):
                if each.ended and not each.has_reader:
                    self.forget(each)
                    break
        return stream

    # Other messages from the client

    def receive_notification(self, message: Envelope) -> None:
        if self.session.is_stateless:
            return
        if message.method == "notifications/initialized":
            self._subscribe()
        elif message.method == "notifications/cancelled" and message.params is not UNSET:
            try:
                cancelled = decode_with_id(CancelledParams, message.params, "requestId")
            except (msgspec.DecodeError, RecursionError):
                return
            id = cancelled.request_id
            if id is not None and id not in self._running:
                id = envelope.other_form(id)
            if id is not None and id in self._running:
                # `Context.cancel_reason` reads the reason from this event.
                event = Cancellation(id, cancelled.reason or "")
                self._running.pop(id).cancel(event)

    def _subscribe(self) -> None:
        try:
            self._server.subscribers.add(self._subscriber)
        except InterlockError as error:  # no request of the client fails
            _log.warning("a session gets no notifications of changes: %s", error)

    def continue_restored(self) -> None:
        """Notify the client of changes from now on, and of all that it may have missed."""
        self._subscribe()
        for kind in ("tools", "prompts", "resources"):
            self._notify(f"notifications/{kind}/list_changed", b"{}")

    def receive_response(self, message: Envelope) -> None:
        """Pass on the client's response to a request; drop a response to an unknown request."""
        id = message.id
        if isinstance(id, str):
            id = envelope.other_form(id)
        future = self._asked.pop(id, None) if type(id) is int else None
        if future is None or future.done():
            self._server.dropped["unexpected response"] += 1
            return
        if message.result is not UNSET:
            future.set_result(message.result)
            return
        try:
            error = decode_error(message.error or b"")
        except (msgspec.DecodeError, RecursionError):
            future.set_exception(RemoteProtocolError("malformed error in response"))
        else:
            future.set_exception(RemoteError(error.code, error.message, error.data))

    # Messages to the client

    def _notify(self, method: str, params: bytes) -> None:
        self.standalone.put(envelope.notification(method, params))

    async def ask(self, call: LegacyCall, method: str, params: bytes, timeout: float) -> Raw:
        """Send a request to the client, on the stream of the client's request that caused it.

        Raises:
            RemoteError: The client refused the request.
            RequestTimeout: The client did not answer within `timeout` seconds.
            ConnectionClosed: The session ended.
        """
        if len(self._asked) >= MAX_ASKED:
            raise CapabilityError(f"too many requests to one client at once (limit {MAX_ASKED})")
        stream = call.open_stream()
        self._last_asked += 1
        id = self._last_asked
        self._asked[id] = future = asyncio.get_running_loop().create_future()
        stream.put(envelope.request(id, method, params))
        try:
            async with asyncio.timeout(timeout):
                answer: Raw = await future
                return answer
        except TimeoutError:
            raise RequestTimeout(
                f"the client did not answer {method} within {timeout:g} s"
            ) from None
        finally:
            if self._asked.pop(id, None) is not None:
                cancelled = encode({"requestId": id})
                stream.put(envelope.notification("notifications/cancelled", cancelled))

    # Streams

    def find(self, event_id: str) -> tuple[ReplayStream, int]:
        """Return the stream of an event that the client has received, and the event's number.

        Raises:
            HttpRefusal: 400: the event id is not valid, or its stream was dropped.
        """
        number, _, seen = event_id.partition("-")
        if number.isdecimal() and seen.isdecimal() and len(event_id) < 40:
            stream = self._streams.get(int(number)) if int(number) else self.standalone
            if stream is not None:
                # A larger number is of the same session in another process.
                return stream, int(seen) if int(seen) <= stream.last else stream.seen
        raise HttpRefusal(400, "Last-Event-ID is not valid, or its stream was dropped")

    def close(self) -> None:
        """End the session, its requests and its streams."""
        if self.is_closed:
            return
        self.is_closed = True
        self._server.subscribers.remove(self._subscriber)
        for call in list(self._running.values()):
            call.cancel()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(ConnectionClosed("the session ended"))
        self._asked.clear()
        for stream in (self.standalone, *self._streams.values()):
            stream.end()
            stream.clear()
        self._streams.clear()


class LegacyCall(Struct, eq=False):
    """A legacy request and the way back to its client: the `BackChannel` of its handler.

    Attributes:
        session: The client's session.
        stream: The stream of messages to the client; None until a message needs it.
        can_stream: Whether the client also reads messages that are not answers.
        stated, params: The content of `_meta`, and the params, if they are already decoded.
        address: The client's address, if it is known.
        caller_headers: Headers of the request that a gateway may pass on.
        authenticator: Has identified the caller; None if any client may call.
        headers: All headers of the request.
        trace: The trace context in the headers; `_meta` takes precedence.
        refusal: The reply if the request was refused as a whole; None otherwise.
        task: The task that answers the request, if it runs in a separate task.
    """

    session: LegacySession
    stream: ReplayStream | None
    can_stream: bool
    stated: request_context.Stated | None = None
    params: CallParams | None = None
    address: str = ""
    caller_headers: HiddenValues = NO_VALUES
    authenticator: Authenticator | None = None
    headers: Sequence[Header] = ()
    trace: TraceContext | None = None
    refusal: RequestRefusal | None = None
    task: asyncio.Task[None] | None = None

    @property
    def caller(self) -> Hashable:
        if self.session.session.is_stateless:
            return self.address or self.session
        return self.session

    def open_stream(self) -> ReplayStream:
        if self.stream is None:
            raise CapabilityError("the call has no stream")
        return self.stream

    def cancel(self, event: Cancellation | None = None) -> None:
        """Cancel the handler; `event` contains the client's reason."""
        if self.task is not None:
            self.task.cancel(event)

    def notify(self, method: str, params: bytes) -> None:
        if self.can_stream:
            self.open_stream().put(envelope.notification(method, params))

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        if not self.can_stream:
            raise CapabilityError(f"{method}: the client accepts no stream, so it cannot be asked")
        return await self.session.ask(self, method, params, timeout)

    def close_stream(self, retry_ms: int) -> None:
        """End the response. A client that can reconnect then gets the remaining messages."""
        if self.session.primes:
            self.open_stream().dismiss_reader(retry_ms)
