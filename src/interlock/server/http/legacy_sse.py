"""The transport HTTP+SSE of 2024-11-05: one stream is the session, and carries all messages."""

from __future__ import annotations

from urllib.parse import parse_qs

from msgspec import UNSET

from interlock.protocol import envelope
from interlock.server.http.legacy import request_of
from interlock.server.http.proxies import PREFIX
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import HttpRefusal, reply_empty
from interlock.server.http.sessions import Sessions
from interlock.server.http.streams import run_until_gone

STREAM_PATH = "/sse"
MESSAGES_PATH = "/message"
MESSAGES_PATHS = (MESSAGES_PATH, "/messages")


class EventSource:
    """Answers clients that use HTTP+SSE of 2024-11-05."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._budget = sessions.budget

    async def open(self, http: HttpRequest, messages: str) -> None:
        """Begin a session: send the path for messages, then all messages until the stream ends.

        Args:
            http: The request for the stream.
            messages: The path for messages, below the application's mount point.

        Raises:
            HttpRefusal: 406 or 503.
        """
        if not http.takes_stream:
            raise HttpRefusal(406, "a stream needs Accept: text/event-stream")
        self._sessions.check_room(http.principal)  # check before the stream counts as open
        with self._budget.stream(http.principal):
            session = self._sessions.make(http.principal, single=True)
            self._sessions.add(session)
            writer = self._budget.writer(http.send, http.extra)
            url = f"{_seen_by_client(http, messages)}?session_id={session.id}"
            writer.put(f"event: endpoint\ndata: {url}\n\n".encode())
            session.standalone.attach(writer, 0)
            try:
                await run_until_gone(writer, http.receive)
            finally:
                session.standalone.detach(writer)
                self._sessions.remove(session)

    async def post(self, http: HttpRequest, body: bytes) -> None:
        """Handle a message; the answer to it is sent on the session's stream.

        Raises:
            HttpRefusal: 400 or 404.
        """
        query = parse_qs(http.scope.get("query_string", b"").decode("latin-1"))
        ids = query.get("session_id", [])
        if len(ids) != 1:
            raise HttpRefusal(400, "session_id is missing")
        session = self._sessions.find(ids[0], http.principal, single=True)
        message = envelope.decode(body)
        if message.method is UNSET:
            session.receive_response(message)
        elif message.id is UNSET:
            session.receive_notification(message)
        else:
            session.start([request_of(message)], http, can_stream=True)
        await reply_empty(http.send, 202, http.extra)


def _seen_by_client(http: HttpRequest, messages: str) -> str:
    """Return the path for messages as a reference that the client resolves by the stream's URL."""
    scope = http.scope
    if PREFIX not in scope and b"x-forwarded-prefix" in http.headers:
        # A proxy has removed a prefix, and is not trusted to name it: a relative reference is
        # right whatever it was. Other clients get a path, because some cannot resolve a name.
        name = messages.rpartition("/")[2]
        return f"../{name}" if scope["path"].endswith("/") else name
    prefix: str = scope.get(PREFIX, "")
    root: str = scope.get("root_path", "")
    return f"{prefix}{root}{messages}"
