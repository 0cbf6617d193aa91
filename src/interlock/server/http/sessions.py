"""Sessions of legacy clients over HTTP: what one has said, what runs for it, and its streams.

Rules:

1. A session exists only after its `initialize` was answered with a result.
2. It belongs to the principal that began it; to others it does not exist.
3. What a client has left alone for the idle time is ended, with all that it holds.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Hashable
from time import monotonic

import msgspec
from msgspec import UNSET, Raw

from interlock import revisions
from interlock.auth.principal import Identity, Principal
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
from interlock.protocol import Cancellation, Request, envelope
from interlock.protocol.envelope import Envelope, encode
from interlock.revisions import INTERNAL_ERROR
from interlock.server import request_context
from interlock.server.answering import Answering
from interlock.server.http.options import HttpOptions
from interlock.server.http.responses import LATER, HttpRefusal
from interlock.server.http.streams import Budget, ReplayStream, too_large_to_send
from interlock.server.subscribers import for_session
from interlock.server.wire_errors import wire_error
from interlock.types import CancelledParams, ErrorObject, RequestId

MAX_RUNNING = 200  # requests of one session at once
MAX_ASKED = 200  # questions to one client at once
MAX_STREAMS = 64  # of one session, kept for a client that may come back

_PRIMING = "2025-11-25"  # first revision whose clients take an event without data
_EMPTY = Raw(b"{}")
_log = logging.getLogger("interlock.server.http")


class LegacySession:
    """One client that has begun with `initialize`.

    Args:
        server: Whose answers.
        principal: To whom the session belongs.
        budget: Shared by all sessions.
        single: All messages go to one stream that ends with the session: HTTP+SSE of 2024.
    """

    def __init__(
        self,
        server: Answering,
        principal: Principal | None,
        budget: Budget,
        *,
        single: bool = False,
    ) -> None:
        self.id = secrets.token_urlsafe(32)
        self.principal = principal
        self.session = Session()
        self.used = monotonic()
        self._server = server
        self._budget = budget
        self.is_single = single
        self.standalone = ReplayStream(0, budget, numbered=not single)
        self._streams: OrderedDict[int, ReplayStream] = OrderedDict()
        self._last_stream = 0
        self._last_asked = 0
        self._running: dict[RequestId, asyncio.Task[None]] = {}
        self._asked: dict[int, asyncio.Future[Raw]] = {}
        self._listener = for_session(self.session.subscriptions, self._tell, principal)
        self.is_closed = False
        self._is_draining = False

    @property
    def is_busy(self) -> bool:
        """Whether something runs for the client, or it reads a stream."""
        return (
            bool(self._running)
            or self.standalone.has_reader
            or any(each.has_reader for each in self._streams.values())
        )

    def drain(self) -> bool:
        """End the standalone stream once no call needs it. Returns whether a call runs."""
        self._is_draining = True
        if not self.is_single or not self._running:
            self.standalone.end()
        return bool(self._running)

    # Requests

    def start(self, requests: list[Request], *, can_stream: bool) -> ReplayStream:
        """Begin to answer requests; their stream ends with the last answer.

        Args:
            requests: At least one.
            can_stream: Whether the client reads more than the answers.

        Raises:
            HttpRefusal: One of them cannot run now.
        """
        ids = [each.id for each in requests]
        for id in ids:
            if id in self._running or ids.count(id) > 1:
                raise HttpRefusal(400, "the id belongs to a request that still runs")
        if len(self._running) + len(requests) > MAX_RUNNING:
            raise HttpRefusal(
                503, f"over {MAX_RUNNING} requests of one session at once", INTERNAL_ERROR
            )
        stream = self.standalone if self.is_single else self._new_stream()
        link = LegacyCall(self, stream, can_stream=can_stream)
        open = len(requests)

        def ended(_task: asyncio.Task[None]) -> None:
            nonlocal open
            open -= 1
            if not open and not self.is_single:
                stream.end()

        for request in requests:
            task = asyncio.create_task(self._answer(request, link))
            self._running[request.id] = task
            task.add_done_callback(ended)
        return stream

    async def _answer(self, request: Request, link: LegacyCall) -> None:
        try:
            answer = await self.answer(request, link)
            try:
                link.stream.put(answer, is_answer=True)
            except MemoryError:
                answer = envelope.error(request.id, *to_wire(too_large_to_send()))
                link.stream.put(answer, is_answer=True)
        finally:
            if self._running.get(request.id) is asyncio.current_task():
                del self._running[request.id]
            if self._is_draining and not self._running:
                self.standalone.end()

    async def answer(self, request: Request, link: LegacyCall) -> bytes:
        """Answer a request; an error is an answer as well."""
        context: Context | None = None
        try:
            meta = request_context.meta_of(request)
            context = request_context.legacy_context(
                request, meta, link, self.session, self.principal
            )
            return envelope.result(request.id, await self._server.answer(request, context))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return envelope.error(request.id, *wire_error(request.method, error))
        finally:
            if context is not None:
                context.finished = True

    def forget(self, stream: ReplayStream) -> None:
        """Keep a stream no longer: its only message has been sent."""
        stream.clear()
        self._streams.pop(stream.number, None)

    def _new_stream(self) -> ReplayStream:
        self._last_stream += 1
        primed = revisions.at_least(self.session.revision, _PRIMING)
        stream = ReplayStream(self._last_stream, self._budget, primed=primed)
        self.standalone.primed = primed
        self._streams[stream.number] = stream
        if len(self._streams) > MAX_STREAMS:
            for each in list(self._streams.values()):
                if each.ended and not each.has_reader:
                    self.forget(each)
                    break
        return stream

    # What else a client sends

    def notice(self, message: Envelope) -> None:
        """Take a notification."""
        if message.method == "notifications/initialized":
            try:
                self._server.subscribers.add(self._listener)
            except InterlockError as error:  # the client asked for no subscription
                _log.warning("a session is told of no changes: %s", error)
        elif message.method == "notifications/cancelled" and message.params is not UNSET:
            try:
                told = msgspec.json.decode(message.params, type=CancelledParams)
            except (msgspec.DecodeError, RecursionError):
                return
            if told.request_id is not None and told.request_id in self._running:
                # The handler finds the reason by `Context.cancel_reason`.
                event = Cancellation(told.request_id, told.reason or "")
                self._running.pop(told.request_id).cancel(event)

    def take(self, message: Envelope) -> None:
        """Take the answer to a question of ours; an answer to nothing is dropped."""
        future = self._asked.pop(message.id, None) if type(message.id) is int else None
        if future is None or future.done():
            self._server.dropped["unexpected response"] += 1
            return
        if message.result is not UNSET:
            future.set_result(message.result)
            return
        try:
            error = msgspec.json.decode(message.error or b"", type=ErrorObject)
        except (msgspec.DecodeError, RecursionError):
            future.set_exception(RemoteProtocolError("malformed error in response"))
        else:
            future.set_exception(RemoteError(error.code, error.message, error.data))

    # What we send

    def _tell(self, method: str, params: bytes) -> None:
        self.standalone.put(envelope.notification(method, params))

    async def ask(self, stream: ReplayStream, method: str, params: bytes, timeout: float) -> Raw:
        """Ask the client, on the stream of the request that makes us ask.

        Raises:
            RemoteError: It refused.
            RequestTimeout: No answer within `timeout` seconds.
            ConnectionClosed: The session ended.
        """
        if len(self._asked) >= MAX_ASKED:
            raise CapabilityError(f"over {MAX_ASKED} questions to one client at once")
        self._last_asked += 1
        id = self._last_asked
        self._asked[id] = future = asyncio.get_running_loop().create_future()
        stream.put(envelope.request(id, method, params))
        try:
            async with asyncio.timeout(timeout):
                answer: Raw = await future
                return answer
        except TimeoutError:
            raise RequestTimeout(f"no answer to {method} within {timeout:g} s") from None
        finally:
            if self._asked.pop(id, None) is not None:
                cancelled = encode({"requestId": id})
                stream.put(envelope.notification("notifications/cancelled", cancelled))

    # Streams

    def find(self, event_id: str) -> tuple[ReplayStream, int]:
        """Find the stream and number of an event that the client has seen.

        Raises:
            HttpRefusal: 400; it is not kept any more.
        """
        number, _, seen = event_id.partition("-")
        if number.isdecimal() and seen.isdecimal() and len(event_id) < 40:
            stream = self._streams.get(int(number)) if int(number) else self.standalone
            if stream is not None:
                return stream, int(seen)
        raise HttpRefusal(400, "Last-Event-ID is of no stream that is kept")

    def close(self) -> None:
        """End everything that belongs to the session."""
        if self.is_closed:
            return
        self.is_closed = True
        self._server.subscribers.remove(self._listener)
        for task in list(self._running.values()):
            task.cancel()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(ConnectionClosed("the session ended"))
        self._asked.clear()
        for stream in (self.standalone, *self._streams.values()):
            stream.end()
            stream.clear()
        self._streams.clear()


class LegacyCall:
    """The way from one legacy request back to its client: the `BackChannel` of its handler."""

    __slots__ = ("_can_stream", "_session", "stream")

    def __init__(self, session: LegacySession, stream: ReplayStream, *, can_stream: bool) -> None:
        self._session = session
        self.stream = stream
        self._can_stream = can_stream

    @property
    def caller(self) -> Hashable:
        """The session."""
        return self._session

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification on the stream of the request."""
        if self._can_stream:
            self.stream.put(envelope.notification(method, params))

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        """Ask the client on the stream of the request."""
        if not self._can_stream:
            raise CapabilityError(f"{method}: the client takes no stream, so it cannot be asked")
        return await self._session.ask(self.stream, method, params, timeout)

    def close_stream(self, retry_ms: int) -> None:
        """Let the client go until it asks for the rest; one that cannot come back stays."""
        if self.stream.primed:
            self.stream.dismiss_reader(retry_ms)


class Sessions:
    """All sessions of an endpoint.

    Args:
        options: How many there may be, and for how long.
    """

    def __init__(self, options: HttpOptions) -> None:
        self._max = options.max_sessions
        self._max_per_principal = options.max_sessions_per_principal
        self._idle = options.session_idle
        self._open: OrderedDict[str, LegacySession] = OrderedDict()  # the least used one first
        self._owners: Counter[str] = Counter()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def check_room(self, principal: Principal | None) -> None:
        """Refuse another session if there are too many.

        Raises:
            HttpRefusal: 503.
        """
        self.expire()
        if len(self._open) >= self._max:
            raise HttpRefusal(
                503,
                f"over {self._max} sessions; try later",
                INTERNAL_ERROR,
                headers=LATER,
            )
        if principal is not None and self._owners[principal.owner] >= self._max_per_principal:
            limit = f"over {self._max_per_principal} sessions of one principal"
            raise HttpRefusal(503, f"{limit}; end some first", INTERNAL_ERROR, headers=LATER)

    def add(self, session: LegacySession) -> None:
        """Let a session be found."""
        self._open[session.id] = session
        if session.principal is not None:
            self._owners[session.principal.owner] += 1
        self._arm()

    def find(self, id: str, principal: Principal | None, *, single: bool = False) -> LegacySession:
        """Find a session, and note that it is used.

        Raises:
            HttpRefusal: 404; there is none of this id for this principal.
        """
        self.expire()
        session = self._open.get(id)
        if (
            session is None
            or session.is_single != single
            or _identity(session.principal) != _identity(principal)
        ):
            raise HttpRefusal(404, "no such session; begin with initialize")
        session.principal = principal  # its scopes and claims may have changed
        session.used = monotonic()
        self._open.move_to_end(id)
        return session

    def remove(self, session: LegacySession) -> None:
        """End a session."""
        if self._open.pop(session.id, None) is not None and session.principal is not None:
            self._owners[session.principal.owner] -= 1
            self._owners += Counter()  # forgets who has none
        session.close()

    def expire(self) -> None:
        """End what was left alone for too long."""
        now = monotonic()
        while self._open:
            session = next(iter(self._open.values()))
            if session.used + self._idle > now:
                break
            if session.is_busy:
                session.used = now
                self._open.move_to_end(session.id)
            else:
                self.remove(session)

    def drain(self) -> None:
        """End idle sessions and standalone streams; calls that run may finish."""
        for session in list(self._open.values()):
            if not session.drain():
                self.remove(session)

    def close(self) -> None:
        """End all sessions."""
        for session in list(self._open.values()):
            self.remove(session)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is None and self._open:
            first = next(iter(self._open.values()))
            delay = max(first.used + self._idle - monotonic(), 1.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.expire()
        self._arm()


def _identity(principal: Principal | None) -> Identity | None:
    return None if principal is None else principal.identity
