"""Streamable HTTP of 2025-03-26 to 2025-11-25: POST, GET and DELETE within a session."""

from __future__ import annotations

from msgspec import UNSET, Raw

from interlock import revisions
from interlock.protocol import Request, envelope
from interlock.protocol.envelope import Envelope
from interlock.server.answering import Answering
from interlock.server.http.options import HttpOptions
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import Header, HttpRefusal, reply, reply_empty
from interlock.server.http.sessions import LegacyCall, LegacySession, Sessions
from interlock.server.http.streams import Budget, EventWriter, ReplayStream, run_until_gone

_SESSION = b"mcp-session-id"
_EMPTY = Raw(b"{}")


class Legacy:
    """Answers legacy clients.

    Args:
        server: Whose answers.
        options: How.
        sessions: All of the endpoint.
        budget: What all streams may take.
    """

    def __init__(
        self, server: Answering, options: HttpOptions, sessions: Sessions, budget: Budget
    ) -> None:
        self._server = server
        self._sessions = sessions
        self._budget = budget
        self._json_silence = options.json_silence
        self._keep_alive = options.keep_alive

    def session_of(self, exchange: HttpRequest) -> LegacySession:
        """Find the session that a request names.

        Raises:
            HttpRefusal: 400 or 404.
        """
        id = exchange.header(_SESSION)
        if id is None:
            raise HttpRefusal(400, "Mcp-Session-Id is missing; begin with initialize")
        return self._sessions.find(id, exchange.principal)

    # POST

    async def serve(self, exchange: HttpRequest, message: Envelope) -> None:
        """Take one message."""
        if message.method == "initialize":
            await self._initialize(exchange, message)
            return
        session = self.session_of(exchange)
        if message.method is UNSET:
            session.take(message)
            await reply_empty(exchange.send, 202, exchange.extra)
        elif message.id is UNSET:
            session.notice(message)
            await reply_empty(exchange.send, 202, exchange.extra)
        else:
            streams = exchange.accepts("text/event-stream")
            stream = session.start([request_of(message)], can_stream=streams)
            await self._respond(exchange, session, stream)

    async def serve_batch(self, exchange: HttpRequest, body: bytes) -> None:
        """Take several messages at once, which one revision allows.

        Raises:
            HttpRefusal, ParseError: Nothing of it was done.
        """
        session = self.session_of(exchange)
        if session.session.revision not in revisions.BATCHES:
            raise HttpRefusal(400, "a batch; this revision has none")
        requests: list[Envelope] = []
        others: list[Envelope] = []
        for each in map(envelope.decode, envelope.split_batch(body)):
            if each.method == "initialize":
                raise HttpRefusal(400, "initialize in a batch")
            is_request = each.method is not UNSET and each.id is not UNSET
            (requests if is_request else others).append(each)
        stream = None
        if requests:
            streams = exchange.accepts("text/event-stream")
            stream = session.start(list(map(request_of, requests)), can_stream=streams)
        for each in others:
            if each.method is UNSET:
                session.take(each)
            else:
                session.notice(each)
        if stream is None:
            await reply_empty(exchange.send, 202, exchange.extra)
        else:
            await self._respond(exchange, session, stream, is_batch=True)

    async def _initialize(self, exchange: HttpRequest, message: Envelope) -> None:
        request = request_of(message)
        self._sessions.check_room(exchange.principal)
        session = LegacySession(self._server, exchange.principal, self._budget)
        body = await session.answer(
            request, LegacyCall(session, session.standalone, can_stream=False)
        )
        extra: list[Header] = list(exchange.extra)
        if session.session.revision:
            self._sessions.check_room(exchange.principal)
            self._sessions.add(session)
            extra.append((_SESSION, session.id.encode()))
        await reply(exchange.send, 200, body, extra)

    async def _respond(
        self,
        exchange: HttpRequest,
        session: LegacySession,
        stream: ReplayStream,
        *,
        is_batch: bool = False,
    ) -> None:
        """Reply with JSON if the answer is all there is, otherwise with a stream."""
        streams = exchange.accepts("text/event-stream")
        while not stream.ended and not (streams and stream.needs_reader):
            if not await stream.changed(self._json_silence if streams else None):
                break
        answers = stream.answer_frames()
        if stream.ended and answers and not (streams and stream.needs_reader):
            session.forget(stream)
            body = b"[%b]" % b",".join(answers) if is_batch else answers[0]
            await reply(exchange.send, 200, body, exchange.extra)
            return
        await self._send(exchange, stream, 0)

    # GET and DELETE

    async def open(self, exchange: HttpRequest) -> None:
        """Send what belongs to no request, or what is left of a stream that was cut.

        Raises:
            HttpRefusal: 400, 404, 406 or 409.
        """
        session = self.session_of(exchange)
        if not exchange.accepts("text/event-stream"):
            raise HttpRefusal(406, "a stream needs Accept: text/event-stream")
        last = exchange.header(b"last-event-id")
        if last is not None:
            stream, after = session.find(last)
        elif session.standalone.has_reader:
            raise HttpRefusal(409, "the session has a stream already")
        else:
            stream, after = session.standalone, session.standalone.seen
        with self._budget.stream(exchange.principal):
            await self._send(exchange, stream, after)

    async def end(self, exchange: HttpRequest) -> None:
        """End a session."""
        self._sessions.remove(self.session_of(exchange))
        await reply_empty(exchange.send, 204, exchange.extra)

    async def _send(self, exchange: HttpRequest, stream: ReplayStream, after: int) -> None:
        outlet = EventWriter(
            exchange.send, exchange.extra, keep_alive=self._keep_alive, dropped=self._budget.dropped
        )
        stream.attach(outlet, after)
        try:
            await run_until_gone(outlet, exchange.receive)
        finally:
            stream.detach(outlet)


def request_of(message: Envelope) -> Request:
    """Give the request that a message is.

    Raises:
        HttpRefusal: 400; it has no id.
    """
    id, params = message.id, message.params
    if id is UNSET or id is None:
        raise HttpRefusal(400, '"id" is null')
    return Request(id, str(message.method), _EMPTY if params is UNSET else params)
