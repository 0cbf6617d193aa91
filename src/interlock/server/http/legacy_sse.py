"""HTTP+SSE of 2024-11-05: all that the server says comes on one stream, which is the session."""

from __future__ import annotations

from urllib.parse import parse_qs

from msgspec import UNSET

from interlock.protocol import envelope
from interlock.server.answering import Answering
from interlock.server.http.legacy import request_of
from interlock.server.http.options import HttpOptions
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import HttpRefusal, reply_empty
from interlock.server.http.sessions import LegacySession, Sessions
from interlock.server.http.streams import Budget, EventWriter, run_until_gone

STREAM_PATH = "/sse"
MESSAGES_PATH = "/messages"


class EventSource:
    """Answers clients of the oldest revision.

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
        self._keep_alive = options.keep_alive

    async def open(self, exchange: HttpRequest) -> None:
        """Send everything, first of all where to post; the session lasts as long as this.

        Raises:
            HttpRefusal: 406 or 503.
        """
        if not exchange.accepts("text/event-stream"):
            raise HttpRefusal(406, "a stream needs Accept: text/event-stream")
        self._sessions.check_room(exchange.principal)
        root: str = exchange.scope.get("root_path", "")
        with self._budget.stream(exchange.principal):
            session = LegacySession(self._server, exchange.principal, self._budget, single=True)
            self._sessions.add(session)
            outlet = EventWriter(
                exchange.send,
                exchange.extra,
                keep_alive=self._keep_alive,
                dropped=self._budget.dropped,
            )
            url = f"{root}{MESSAGES_PATH}?session_id={session.id}"
            outlet.put(f"event: endpoint\ndata: {url}\n\n".encode())
            session.standalone.attach(outlet, 0)
            try:
                await run_until_gone(outlet, exchange.receive)
            finally:
                session.standalone.detach(outlet)
                self._sessions.remove(session)

    async def post(self, exchange: HttpRequest, body: bytes) -> None:
        """Take a message; what it leads to comes on the stream.

        Raises:
            HttpRefusal: 400 or 404.
        """
        query = parse_qs(exchange.scope.get("query_string", b"").decode("latin-1"))
        ids = query.get("session_id", [])
        if len(ids) != 1:
            raise HttpRefusal(400, "session_id is missing")
        session = self._sessions.find(ids[0], exchange.principal, single=True)
        message = envelope.decode(body)
        if message.method is UNSET:
            session.take(message)
        elif message.id is UNSET:
            session.notice(message)
        else:
            session.start([request_of(message)], can_stream=True)
        await reply_empty(exchange.send, 202, exchange.extra)
