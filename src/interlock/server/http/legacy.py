"""Streamable HTTP for legacy clients, 2025-03-26 to 2025-11-25: POST, GET and DELETE."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from msgspec import UNSET, Raw

from interlock import revisions
from interlock.protocol import Cancellation, Request, envelope
from interlock.protocol.envelope import Envelope
from interlock.server.http.legacy_session import LegacyCall, LegacySession
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import (
    JSON_TYPE,
    Header,
    HttpRefusal,
    disconnected,
    reply,
    reply_empty,
)
from interlock.server.http.sessions import Sessions
from interlock.server.http.streams import ReplayStream, run_until_gone
from interlock.server.request_context import CallParams, Stated
from interlock.server.wire_errors import wire_error
from interlock.types import RequestId

_SESSION = b"mcp-session-id"
_FIRST = "2025-03-26"  # the first revision with streamable HTTP
_EMPTY = Raw(b"{}")


class Legacy:
    """Answers legacy clients over streamable HTTP.

    Args:
        sessions: All sessions of the endpoint.
        json_silence: Seconds after which a reply that is not ready becomes a stream.
    """

    def __init__(self, sessions: Sessions, json_silence: float) -> None:
        self.json_silence = json_silence
        self._sessions = sessions
        self._budget = sessions.budget

    def _session_of(self, http: HttpRequest) -> LegacySession:
        if self._sessions.is_stateless:
            # Clients of 2025-03-26 send no header with the revision.
            revision = http.header(b"mcp-protocol-version") or _FIRST
            return self._sessions.make_stateless(http.principal, revision)
        id = http.headers.get(_SESSION)
        if id is None:
            raise HttpRefusal(400, "Mcp-Session-Id is missing; begin with initialize")
        return self._sessions.find(id, http.principal)

    # POST

    async def serve(
        self,
        http: HttpRequest,
        message: Envelope,
        stated: Stated,
        call_params: CallParams | None,
    ) -> None:
        """Handle one message from the client.

        Raises:
            HttpRefusal: 400, 404 or 503: the message was not handled.
        """
        if message.method == "initialize":
            await self._initialize(http, message)
            return
        id = http.headers.get(_SESSION)
        if id is None or self._sessions.is_stateless:
            session = self._session_of(http)
        else:
            session = self._sessions.find(id, http.principal)
        if message.method is UNSET:
            session.receive_response(message)
            await reply_empty(http.send, 202, http.extra)
        elif message.id is UNSET or message.id is None:
            if not envelope.is_notification(message):
                raise HttpRefusal(400, '"id" is null')
            session.receive_notification(message)
            await reply_empty(http.send, 202, http.extra)
        else:
            params = _EMPTY if message.params is UNSET else message.params
            request = Request(message.id, message.method, params)
            call = RepliedCall(
                session,
                None,
                http.takes_stream,
                stated,
                call_params,
                http.address,
                http.caller_headers,
                http.authenticator,
                http.scope["headers"],
                trace=http.trace if b"traceparent" in http.headers else None,
                legacy=self,
                http=http,
            )
            await self._answer(http, session, request, call)

    async def _answer(
        self, http: HttpRequest, session: LegacySession, request: Request, call: RepliedCall
    ) -> None:
        """Answer a request in its own task, with JSON unless there are other messages to send."""
        session.begin(request.id, call)
        http.on_late = call.linger
        if http.is_late:
            call.linger()
        try:
            answer = None  # stays None if the call is cancelled
            try:
                answer = await session.answer(request, call)
            except asyncio.CancelledError:
                if not call.is_cancelled or http.task.cancelling() > 1:  # cancelled by the host
                    raise
            finally:
                if call.is_cancelled:
                    http.task.uncancel()
                http.on_late = None
                if call.silence is not None:
                    call.silence.cancel()
                if call.watch is not None:
                    call.watch.cancel()
                if session.is_draining:
                    session.settle()
            if answer is not None and call.stream is None:
                status, headers = 200, http.extra
                if call.refusal is not None:
                    status, headers = call.refusal.status, [*call.refusal.headers, *headers]
                elif http.at_once and not headers and http.at_once(http.scope, answer):
                    return
                # The code of `reply`, inlined to save a coroutine for each request.
                headers = [JSON_TYPE, (b"content-length", b"%d" % len(answer)), *headers]
                start = {"type": "http.response.start", "status": status, "headers": headers}
                await http.send(start)
                await http.send({"type": "http.response.body", "body": answer})
            else:
                await call.end_stream(request.id, answer)
        except MemoryError as error:
            if call.stream is not None:  # or the client would reconnect and wait
                failed = envelope.error(request.id, *wire_error(request.method, error))
                session.put_answer(call.stream, request.id, failed)
            raise
        finally:
            if call.stream is not None:
                call.stream.end()
            if session.session.is_stateless:
                session.close()

    async def serve_batch(self, http: HttpRequest, body: bytes) -> None:
        """Handle a batch of messages, which only revision 2025-03-26 allows.

        Raises:
            HttpRefusal, ParseError: No message was handled.
        """
        session = self._session_of(http)
        if session.session.revision not in revisions.BATCHES:
            raise HttpRefusal(400, "this revision has no batches; send one message")
        requests: list[Envelope] = []
        others: list[Envelope] = []
        for each in map(envelope.decode, envelope.split_batch(body)):
            if each.method == "initialize":
                raise HttpRefusal(400, "initialize in a batch; send it alone")
            is_request = each.method is not UNSET and each.id is not UNSET
            (requests if is_request else others).append(each)
        stream = None
        if requests:
            each_request = list(map(request_of, requests))
            stream = session.start(each_request, http, can_stream=http.takes_stream)
        for each in others:
            if each.method is UNSET:
                session.receive_response(each)
            else:
                session.receive_notification(each)
        try:
            if stream is None:
                await reply_empty(http.send, 202, http.extra)
            else:
                await self._reply_to_batch(http, session, stream)
        finally:
            if session.session.is_stateless:
                session.close()

    async def _reply_to_batch(
        self, http: HttpRequest, session: LegacySession, stream: ReplayStream
    ) -> None:
        """Reply with JSON if all messages to send are answers, otherwise with a stream."""
        streams = http.takes_stream
        with suppress(TimeoutError):
            async with asyncio.timeout(self.json_silence if streams else None):
                while not stream.ended and not (streams and stream.needs_reader):
                    await stream.changed()
        answers = stream.answer_frames()
        if stream.ended and answers and not (streams and stream.needs_reader):
            session.forget(stream)
            await reply(http.send, 200, b"[%b]" % b",".join(answers), http.extra)
        else:
            await self.send(http, stream, 0)

    async def _initialize(self, http: HttpRequest, message: Envelope) -> None:
        request = request_of(message)
        session = self._sessions.make(http.principal)
        body = await session.answer(request, LegacyCall(session, session.standalone, False))
        extra: list[Header] = list(http.extra)
        if session.session.revision and not self._sessions.is_stateless:
            self._sessions.begin(session)
            extra.append((_SESSION, session.id.encode()))
        await reply(http.send, 200, body, extra)

    # GET and DELETE

    async def open(self, http: HttpRequest) -> None:
        """Stream the messages that belong to no request, or the rest of an interrupted stream.

        Raises:
            HttpRefusal: 400, 404, 406, 409 or 503.
        """
        session = self._session_of(http)
        if not http.takes_stream:
            raise HttpRefusal(406, "a stream needs Accept: text/event-stream")
        last = http.header(b"last-event-id")
        if last is not None:
            stream, after = session.find(last)
        elif session.standalone.has_reader:
            raise HttpRefusal(409, "the session already has a stream")
        else:
            stream, after = session.standalone, session.standalone.seen
        with self._budget.stream(http.principal):
            await self.send(http, stream, after)

    async def end(self, http: HttpRequest) -> None:
        await self._sessions.end(self._session_of(http))
        await reply_empty(http.send, 204, http.extra)

    async def send(self, http: HttpRequest, stream: ReplayStream, after: int) -> None:
        """Send a stream's events after number `after`, until it ends or the client disconnects."""
        writer = self._budget.writer(http.send, http.extra)
        stream.attach(writer, after)
        try:
            await run_until_gone(writer, http.receive)
        finally:
            stream.detach(writer)


class RepliedCall(LegacyCall, eq=False, kw_only=True):
    """A call with its own response, which becomes a stream if a message precedes the answer.

    Attributes:
        legacy: Sends the stream.
        is_cancelled: Whether the client has cancelled the call.
        silence: The timer that opens the stream when the handler is slow.
        watch: Ends when the client disconnects; only without a session and a stream.
    """

    legacy: Legacy
    http: HttpRequest
    is_cancelled: bool = False
    silence: asyncio.TimerHandle | None = None
    watch: asyncio.Task[None] | None = None
    _sending: asyncio.Task[None] | None = None

    def open_stream(self) -> ReplayStream:
        """Return the call's stream, and make the response a stream if it is not one yet."""
        if self.stream is None:
            self.stream = self.session.new_stream()
            sending = self.legacy.send(self.http, self.stream, 0)
            self._sending = self.http.task.get_loop().create_task(sending)
            if self.session.session.is_stateless:
                self._sending.add_done_callback(self._gone)
        return self.stream

    def linger(self) -> None:
        """Start the timer that opens the stream after a silence, because the handler is slow."""
        loop = self.http.task.get_loop()
        if self.can_stream:
            self.silence = loop.call_later(self.legacy.json_silence, self.open_stream)
        elif self.session.session.is_stateless:
            self.watch = loop.create_task(disconnected(self.http.receive))
            self.watch.add_done_callback(self._gone)

    def _gone(self, watch: asyncio.Task[None]) -> None:
        """Cancel a stateless call when its client disconnects: nothing could fetch the result."""
        if not watch.cancelled() and self.session.is_running(self):
            self.cancel()

    def cancel(self, event: Cancellation | None = None) -> None:
        self.is_cancelled = True
        self.http.task.cancel(event)

    async def end_stream(self, id: RequestId, answer: bytes | None) -> None:
        """Send the answer, unless it is None, as the stream's last event; end the stream."""
        stream = self.open_stream()
        if answer is not None:
            self.session.put_answer(stream, id, answer)
        stream.end()
        if self._sending is not None:
            await self._sending


def request_of(message: Envelope) -> Request:
    """Return a message as a request; raise if it has no id.

    Raises:
        HttpRefusal: 400: the message has no id.
    """
    id, params = message.id, message.params
    if id is UNSET or id is None:
        raise HttpRefusal(400, '"id" is null')
    return Request(id, str(message.method), _EMPTY if params is UNSET else params)
