"""The protocol of one connection, without IO: bytes and time in, events and bytes out.

Rules:

1. `Protocol` opens nothing, awaits nothing and reads no clock: `now` is an argument, in seconds.
2. Every request that `request` accepts ends exactly once: with the event `Answer` or `Failure`, or
   without an event by `cancel`.
3. Ids match by type and value, or by their text: a peer may repeat 5 as "5". A response whose id
   matches no request is counted in `dropped`.
4. A peer's request is answered at most once, and not at all after it was cancelled.
"""

from __future__ import annotations

import typing
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from interlock.errors import (
    ConnectionClosed,
    InterlockError,
    LocalProtocolError,
    OutOfMemory,
    ParseError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
)
from interlock.observing import TraceContext
from interlock.protocol import envelope
from interlock.protocol.envelope import RequestFrame, with_trace
from interlock.protocol.events import (
    Answer,
    Cancellation,
    Event,
    Failure,
    Notification,
    Overrun,
    Progress,
    ProgressHandler,
    Request,
    Stray,
)
from interlock.protocol.leniency import decode_error, decode_with_id
from interlock.protocol.odd_lines import WRONG_FRAMING, OddLines, is_header, messages_on
from interlock.revisions import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND
from interlock.text.redaction import NO_VALUES, HiddenValues
from interlock.types import CancelledParams, ProgressParams, RequestId

# The most requests from the peer that may run at the same time; further requests are refused.
MAX_RUNNING = 1_000

# More than MAX_GARBAGE bytes of malformed messages within GARBAGE_WINDOW cause an `Overrun`. Each
# message counts GARBAGE_COST bytes more than it has, for the work that it causes, and at most
# GARBAGE_SHARE, so that a few large ones do no harm.
MAX_GARBAGE = 4 * 2**20
GARBAGE_COST = 64
GARBAGE_SHARE = MAX_GARBAGE // 100
GARBAGE_WINDOW = 60.0  # seconds

# The most progress notifications for one request within a second. Further notifications are
# dropped, because later notifications supersede them.
MAX_PROGRESS = 1_000

# The most requests without an answer that are remembered after they were given up.
MAX_UNANSWERED = 16

_HANDSHAKE = ("initialize", "server/discover")
_EMPTY = Raw(b"{}")
_NULL = Raw(b"null")  # some peers send both `result` and `error`, one of them null
_NEVER = float("inf")


class Counted(typing.Protocol):
    """A larger operation that counts the messages sent for it."""

    messages: int


class RequestOptions(Struct, frozen=True):
    """The options of one request, such as its timeouts.

    Attributes:
        timeout: Seconds without progress until the request fails; None for no limit.
        hard_timeout: Seconds in all, progress or not; None for no limit.
        progress: Called with each progress report; None to request no progress.
        meta: Further members of `_meta`, encoded without braces.
        replace_meta: Whether `meta` replaces the connection's own `_meta` members, as in a
            request on behalf of another client.
        name: The value for the HTTP header Mcp-Name, which repeats a member of `params`; None
            if `headers.NAMES` does not list the method.
        idempotent: Whether sending the request twice has the same effect as sending it once, so
            that it may be retried.
        answers: Answers the peer's requests that arrive during this request; see
            `Connection.answers_during`.
        counted: The operation whose count of messages includes this request.
        headers: HTTP headers of this request only.
        trace: The trace context to send; None to send none.
        started: Called with the request's id when the request is sent; a retry has another id.
    """

    timeout: float | None = None
    hard_timeout: float | None = None
    progress: ProgressHandler | None = None
    meta: bytes = b""
    replace_meta: bool = False
    name: str | None = None
    idempotent: bool = False
    answers: object | None = None
    counted: Counted | None = None
    headers: HiddenValues = NO_VALUES
    trace: TraceContext | None = None
    started: Callable[[int], None] | None = None


_DEFAULTS = RequestOptions()
_REQUEST = b'{"jsonrpc":"2.0","id":%d,"method":%b,"params":%b}'  # method and params are encoded


class _Pending(Struct, gc=False):
    """A request from us that has not ended."""

    method: str
    timeout: float | None  # seconds without progress
    idle_deadline: float
    hard_deadline: float
    progress: float | None = None  # the last value; None if progress was not requested
    second: float = -_NEVER  # when the current second of `count` began
    count: int = 0  # progress notifications in this second
    pauses: int = 0
    paused_at: float = 0.0


class _Batch(Struct):
    """The responses to a batch, which are sent together once the last response is ready."""

    open: int = 1  # unanswered requests, plus one while the batch is being read
    replies: list[bytes] = []


class Protocol:
    """The protocol of one MCP connection, for a client or a server.

    Args:
        meta: Members of `_meta` for each request, encoded without braces. A modern client's
            `_meta` states its revision and capabilities.
        batches: Whether to accept JSON-RPC batches, as revision 2025-03-26 demands.
        answers_garbage: Whether to answer malformed messages with an error without an id, as
            servers do.
        dropped: The counter for dropped messages; None to create a counter.

    Attributes:
        dropped: The number of dropped messages, by reason.
        outbox: Frames that are ready to be sent; see `frames_to_send`.
        hands_over_calls: Whether tool calls are handed over without a frame, because the peer is
            in this process.
        unframed: The last tool call without a frame.
    """

    def __init__(
        self,
        *,
        meta: bytes = b"",
        batches: bool = False,
        answers_garbage: bool = False,
        dropped: Counter[str] | None = None,
    ) -> None:
        self.meta = meta
        self.batches = batches
        self.answers_garbage = answers_garbage
        self.dropped: Counter[str] = Counter() if dropped is None else dropped
        self.closed: InterlockError | None = None
        self._last_id = 0
        self._pending: dict[RequestId, _Pending] = {}
        self._unanswered: deque[RequestId] = deque(maxlen=MAX_UNANSWERED)  # requests we gave up
        self._running: dict[RequestId, _Batch | None] = {}
        self.outbox: list[bytes] = []
        self.hands_over_calls = False
        self.unframed: Request
        self._garbage_since = -_NEVER  # when the current window began
        self._garbage = 0  # bytes in the current window
        self._lines = OddLines(splits=not answers_garbage)

    # Sending

    def request(
        self, method: str, params: bytes = b"{}", options: RequestOptions = _DEFAULTS, *, now: float
    ) -> int:
        """Queue a request for the peer and return its id; ids count from 1.

        Args:
            method: The method's name, such as "tools/list".
            params: An encoded object, without `_meta`.
            options: See `RequestOptions`. The request's id is its progress token.
            now: The time, in seconds of the monotonic clock.

        Raises:
            LocalProtocolError: The method begins with "rpc.", which JSON-RPC reserves.
            ConnectionClosed: `close` was called; nothing can be sent any more.

        Spec 2026-07-28: basic/patterns/cancellation, "Timeouts".
        """
        if self.closed is not None or method.startswith("rpc."):
            raise self._not_sent(method)
        self._last_id = id = self._last_id + 1
        meta, timeout, hard_timeout = options.meta, options.timeout, options.hard_timeout
        if not meta:
            meta = self.meta
        elif self.meta and not options.replace_meta:
            meta = b"%b,%b" % (self.meta, meta)
        members = meta if options.trace is None else with_trace(meta, options.trace)
        if options.progress is not None:
            members = b'%b%b"progressToken":%d' % (members, b"," if members else b"", id)
        if members:  # `request` and `with_meta` are inlined for speed. Memory may run out here.
            rest = b"," + params[1:] if len(params) > 2 else b"}"
            params = b'{"_meta":{%b}%b' % (members, rest)
        if is_handed_over := (self.hands_over_calls and method == "tools/call"):
            self.unframed = Request(id, method, Raw(params))
        elif len(params) > 2:
            frame = RequestFrame(_REQUEST % (id, envelope.quoted(method), params))
        else:
            frame = RequestFrame(envelope.request(id, method, params))
        idle_deadline = _NEVER if timeout is None else now + timeout
        hard_deadline = _NEVER if hard_timeout is None else now + hard_timeout
        progress = None if options.progress is None else -_NEVER
        self._pending[id] = _Pending(method, timeout, idle_deadline, hard_deadline, progress)
        if not is_handed_over:
            frame.id, frame.method, frame.name = id, method, options.name
            frame.meta, frame.headers, frame.trace = meta, options.headers, options.trace
            self.outbox.append(frame)
        if options.counted is not None:
            options.counted.messages += 1
        if options.started is not None:
            options.started(id)
        return id

    def _not_sent(self, method: str) -> InterlockError:
        if self.closed is not None:
            return copy(self.closed)
        return LocalProtocolError(f"method {method!r} is reserved by JSON-RPC")

    def notify(self, method: str, params: bytes = b"{}") -> None:
        """Queue a notification; after `close` it is dropped."""
        if self.closed is None:
            self.outbox.append(envelope.notification(method, params))

    def cancel(self, id: RequestId, reason: str = "") -> bool:
        """End our request `id` and cancel it at the peer; return False if it has already ended."""
        pending = self._pending.pop(id, None)
        if pending is None:
            return False
        self._unanswered.append(id)
        self._notify_cancelled(id, pending, reason)
        return True

    def reply(self, id: RequestId, result: bytes) -> None:
        """Queue the result of the peer's request `id`; drop it if the request was cancelled."""
        written = b"%d" % id if type(id) is int else envelope.encode(id)
        frame = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (written, result)
        batch = self._running.get(id, _UNKNOWN)
        if batch is None:
            self.outbox.append(frame)
        else:
            self._finish(batch, frame)
        self._running.pop(id, None)  # comes last, so that `reply_error` works after a MemoryError

    def reply_error(self, id: RequestId, code: int, message: str, data: Any = None) -> None:
        """Queue an error for the peer's request `id`; drop it if the request was cancelled."""
        batch = self._running.pop(id, _UNKNOWN)
        self._finish(batch, envelope.error(id, code, message, data))

    def ignore(self, id: RequestId) -> None:
        """Drop the peer's request `id`, because the peer's revision does not allow it."""
        batch = self._running.pop(id, None)
        if batch is not None:
            self._add_to_batch(batch, None)
        self.dropped["unexpected request"] += 1

    def frames_to_send(self) -> list[bytes]:
        """Return the frames that are ready to be sent, and empty the outbox."""
        outbox, self.outbox = self.outbox, []
        return outbox

    def _notify_cancelled(self, id: RequestId, pending: _Pending, reason: str) -> None:
        # A handshake must not be cancelled: old servers accept no other message until it ends.
        if pending.method not in _HANDSHAKE:
            params = CancelledParams(request_id=id, reason=reason or None)
            self.notify("notifications/cancelled", envelope.encode(params))

    def _finish(self, batch: _Batch | None, frame: bytes) -> None:
        if batch is _UNKNOWN:
            self.dropped["reply to unknown request"] += 1
        elif batch is None:
            self.outbox.append(frame)
        else:
            self._add_to_batch(batch, frame)

    def _add_to_batch(self, batch: _Batch, frame: bytes | None) -> None:
        batch.open -= 1
        if frame is not None:
            batch.replies.append(frame)
        if batch.open == 0 and batch.replies:
            self.outbox.append(b"[%b]" % b",".join(batch.replies))

    # Receiving

    def receive(
        self,
        frame: bytes,
        *,
        now: float,
        request: RequestId | None = None,
        batch: _Batch | None = None,
    ) -> list[Event]:
        """Decode one frame (without its newline) and return its events.

        No message from a peer raises an error here. An invalid message is counted in `dropped`; if
        it can be recognized as a response, the request that it answers fails.

        Args:
            frame: One message.
            now: The time, in seconds of the monotonic clock.
            request: Our request on whose stream the frame arrived; None if all share a stream.
            batch: The batch that contains the message; None outside of a batch.
        """
        if self.closed is not None:
            return []
        if frame[:1] == b"[" and self.batches and batch is None:
            return self._receive_batch(frame, now, request)
        try:
            message = envelope.decode(frame)
        except (ParseError, MemoryError) as error:
            return self._receive_undecodable(frame, error, now, request, batch)
        if message.method is UNSET:
            result, failure = message.result, message.error
            if request is not None and message.id != request and not self._is_for(request, message):
                return []
            id = message.id if request is None else request
            if id is UNSET or id is None or self._pending.pop(id, None) is None:
                return self._receive_odd_response(id, result, failure)
            if result is not UNSET and (failure is UNSET or failure == _NULL):
                return [Answer(id, result)]
            return [self._failure(id, result, failure)]
        id, method = message.id, message.method
        params = _EMPTY if message.params is UNSET else message.params
        if id is UNSET:
            return self._receive_notification(method, params, now, request)
        if id is None or id in self._running:
            return self._receive_bad_id(message, now, request, batch)
        self._running[id] = batch
        if batch is not None:
            batch.open += 1
        if len(self._running) > MAX_RUNNING or (batch is not None and method == "initialize"):
            return self._refuse(id)
        return [Request(id, method, params, request)]

    def accept(self, request: Request) -> bool:
        """Register a request from a peer in this process; return False if it must be dropped."""
        if self.closed is not None:
            return False
        self._running[request.id] = None
        if len(self._running) > MAX_RUNNING:
            self._refuse(request.id)
            return False
        return True

    def _is_for(self, request: RequestId, message: envelope.Envelope) -> bool:
        """Return whether a response whose id is not `request` answers it all the same.

        The id may have the other form, or the server could not read it and reports an error.
        """
        id = message.id
        if id in (None, UNSET) and message.error is not UNSET:
            return True
        if isinstance(id, int | str) and envelope.other_form(id) == request:
            return True
        self.dropped["response to another request"] += 1
        return False

    def _receive_odd_response(
        self,
        id: RequestId | UnsetType | None,
        result: Raw | UnsetType,
        failure: Raw | UnsetType,
    ) -> list[Event]:
        known = self._pop_other_form(id)
        if known is None and id in (None, UNSET) and failure is not UNSET and failure != _NULL:
            return self._receive_error_without_id(failure)
        if known is None:
            self.dropped["unexpected response"] += 1
            with suppress(ValueError):  # it may be the answer to a request that was given up
                self._unanswered.remove(id)  # type: ignore[arg-type]
            return []
        if result is not UNSET and (failure is UNSET or failure == _NULL):
            return [Answer(known, result)]
        return [self._failure(known, result, failure)]

    def _receive_error_without_id(self, error: Raw) -> list[Event]:
        """End the only open request by an error whose id is null; report it if there are more.

        Some servers lose the id of a request that they cannot read or run:
        https://github.com/modelcontextprotocol/java-sdk/issues/506. Such a request may have timed
        out before, so that the error is not about the one that is open now.
        """
        count = len(self._pending) + len(self._unanswered)
        id = next(iter(self._pending), 0) if count == 1 else 0
        if self._unanswered:
            self._unanswered.popleft()
        failure = self._failure(id, UNSET, error)
        # Some servers answer an unknown notification; none is sent before the handshake ends.
        may_be_a_notification = getattr(failure.error, "code", None) == METHOD_NOT_FOUND
        if id and (not may_be_a_notification or self._pending[id].method in _HANDSHAKE):
            del self._pending[id]
            return [failure]
        if count <= 1 or not self._pending:
            self.dropped["unexpected response"] += 1
            return []
        self.dropped["error without an id"] += 1
        return [Stray(failure.error, count)]

    def _pop_other_form(self, id: RequestId | UnsetType | None) -> RequestId | None:
        """End our request whose id has the same text as `id`, but another type; return its id."""
        other = envelope.other_form(id) if isinstance(id, int | str) else None
        return other if other is not None and self._pending.pop(other, None) is not None else None

    def _receive_bad_id(
        self,
        message: envelope.Envelope,
        now: float,
        request: RequestId | None,
        batch: _Batch | None,
    ) -> list[Event]:
        id, method, params = message.id, message.method, message.params
        if envelope.is_notification(message) and isinstance(method, str):
            params = _EMPTY if params is UNSET else params
            return self._receive_notification(method, params, now, request)
        why = '"id" is null'
        if id is not None:  # one response cannot answer two requests with the same id
            why = f"a request with id {id!r} is still running"
        return self._receive_garbage(b"", ParseError(why, INVALID_REQUEST), now, None, batch)

    def _refuse(self, id: RequestId) -> list[Event]:
        if len(self._running) > MAX_RUNNING:
            self.dropped["too many requests"] += 1
            self.reply_error(id, INTERNAL_ERROR, f"over {MAX_RUNNING} requests at once; try later")
        else:
            self.reply_error(id, INVALID_REQUEST, "initialize must not be part of a batch")
        return []

    def _receive_undecodable(
        self,
        frame: bytes,
        error: ParseError | MemoryError,
        now: float,
        request: RequestId | None,
        batch: _Batch | None,
    ) -> list[Event]:
        if isinstance(error, MemoryError) or isinstance(frame, envelope.Cut):
            answered = _answered_by(frame, request, batch)
            return self._receive_too_much(answered, envelope.id_of_request(frame), batch)
        if batch is None and not self.answers_garbage:  # a server refuses lists
            listed = frame.removeprefix(envelope.BOM).lstrip()
            if listed[:1] == b"[":
                return self._receive_batch(listed, now, request)
        return self._receive_malformed(frame, error, now, request, batch)

    def _receive_malformed(
        self,
        frame: bytes,
        error: ParseError,
        now: float,
        request: RequestId | None,
        batch: _Batch | None,
    ) -> list[Event]:
        if batch is not None:
            return self._receive_garbage(frame, error, now, request, batch)
        if request is not None:
            found = [] if self.answers_garbage else messages_on(frame, request)
            if not found:
                return self._receive_garbage(frame, error, now, request, None)
            received = [self.receive(each, now=now, request=request) for each in found]
            return [event for each in received for event in each]
        if is_header(frame):
            return [Overrun(RemoteProtocolError(WRONG_FRAMING))]
        awaited = next(iter(self._pending)) if len(self._pending) == 1 else None
        messages, dropped = self._lines.read(frame, now=now, awaited=awaited)
        events: list[Event] = []
        for each in dropped:
            if each is not frame:  # it took many lines, so it counts in full
                self._garbage += len(each)
            events += self._receive_garbage(each, error, now, None, None)
        for each in messages:
            events += self.receive(each, now=now)
        return events

    def _receive_batch(self, frame: bytes, now: float, request: RequestId | None) -> list[Event]:
        try:
            messages = envelope.split_batch(frame)
        except ParseError as error:
            return self._receive_malformed(frame, error, now, request, None)
        batch = _Batch()
        events: list[Event] = []
        for message in messages:
            events += self.receive(message, now=now, request=request, batch=batch)
            if events and isinstance(events[-1], Overrun):  # an overrun ends the connection
                return events
        self._add_to_batch(batch, None)
        return events

    def _failure(self, id: RequestId, result: Raw | UnsetType, error: Raw | UnsetType) -> Failure:
        if error is UNSET or (result is not UNSET and result != _NULL):
            self.dropped["malformed response"] += 1
            return Failure(id, RemoteProtocolError("response needs either result or error"))
        try:
            decoded = decode_error(error)
        except (msgspec.DecodeError, RecursionError) as reason:
            self.dropped["malformed response"] += 1
            return Failure(id, RemoteProtocolError(f"malformed error in response: {reason}"))
        return Failure(id, RemoteError(decoded.code, decoded.message, decoded.data))

    def fail(self, id: RequestId, error: InterlockError) -> Failure | None:
        """Fail our request `id`, which gets no response; return None if it has already ended."""
        return None if self._pending.pop(id, None) is None else Failure(id, error)

    def _receive_notification(
        self, method: str, params: Raw, now: float, during: RequestId | None
    ) -> list[Event]:
        if method == "notifications/progress":
            return self._receive_progress(params, now)
        if method == "notifications/cancelled":
            return self._receive_cancelled(params)
        return [Notification(method, params, during)]

    def _receive_progress(self, params: Raw, now: float) -> list[Event]:
        try:
            progress = decode_with_id(ProgressParams, params, "progressToken")
        except (msgspec.DecodeError, RecursionError):
            self.dropped["malformed notification"] += 1
            return []
        token, value = progress.progress_token, progress.progress
        pending = self._pending.get(token)
        if pending is None:
            token = envelope.other_form(token) or token
            pending = self._pending.get(token)
        if pending is None or pending.progress is None or value <= pending.progress:
            self.dropped["unexpected progress"] += 1
            return []
        pending.progress = value
        if pending.timeout is not None:
            pending.idle_deadline = now + pending.timeout
        if now - pending.second >= 1.0:
            pending.second, pending.count = now, 0
        pending.count += 1
        if pending.count > MAX_PROGRESS:
            self.dropped["progress too often"] += 1
            return []
        return [Progress(token, value, progress.total, progress.message)]

    def _receive_cancelled(self, params: Raw) -> list[Event]:
        try:
            cancelled = decode_with_id(CancelledParams, params, "requestId")
        except (msgspec.DecodeError, RecursionError):
            self.dropped["malformed notification"] += 1
            return []
        id = cancelled.request_id
        if id is not None and id not in self._running:
            id = envelope.other_form(id)
        if id is None or id not in self._running:
            self.dropped["cancellation of unknown request"] += 1
            return []
        batch = self._running.pop(id)
        if batch is not None:
            self._add_to_batch(batch, None)
        return [Cancellation(id, cancelled.reason or "")]

    def _receive_too_much(
        self, answered: RequestId | None, asked: RequestId | None, batch: _Batch | None
    ) -> list[Event]:
        self.dropped["no memory"] += 1
        error = OutOfMemory("a message does not fit into memory")
        if answered is not None and self._pending.pop(answered, None) is not None:
            return [Failure(answered, error)]
        if asked is not None and asked not in self._running:
            replies = self.outbox if batch is None else batch.replies
            replies.append(envelope.error(asked, INTERNAL_ERROR, str(error)))
        return []

    def _receive_garbage(
        self,
        frame: bytes,
        error: ParseError,
        now: float,
        request: RequestId | None,
        batch: _Batch | None,
    ) -> list[Event]:
        self.dropped["garbage"] += 1
        if now - self._garbage_since >= GARBAGE_WINDOW:
            self._garbage_since, self._garbage = now, 0
        self._garbage += min(len(frame) + GARBAGE_COST, GARBAGE_SHARE)
        if self._garbage > MAX_GARBAGE:
            limit = f"{MAX_GARBAGE / 2**20:g} MiB of malformed messages"
            text = f"over {limit} within {GARBAGE_WINDOW:g} s, the last one: {error}"
            return [Overrun(RemoteProtocolError(text))]
        id = _answered_by(frame, request, batch)
        if id is not None:
            id = id if self._pending.pop(id, None) is not None else self._pop_other_form(id)
        if id is not None:
            return [Failure(id, error)]
        if self.answers_garbage:
            replies = self.outbox if batch is None else batch.replies
            replies.append(envelope.error(None, error.code, str(error)))
        return []

    # Time

    def pause(self, id: RequestId, *, now: float) -> None:
        """Suspend the deadlines of our request `id` until `resume` was called as often as this."""
        pending = self._pending.get(id)
        if pending is None:
            return
        if not pending.pauses:
            pending.paused_at = now
        pending.pauses += 1

    def resume(self, id: RequestId, *, now: float) -> None:
        pending = self._pending.get(id)
        if pending is None:
            return
        pending.pauses -= 1
        if not pending.pauses:
            pending.idle_deadline += now - pending.paused_at
            pending.hard_deadline += now - pending.paused_at

    def deadline(self) -> float | None:
        """Return the time at which to call `expire`, by the clock of `now`; None if never."""
        first = min(
            (
                min(each.idle_deadline, each.hard_deadline)
                for each in self._pending.values()
                if not each.pauses
            ),
            default=_NEVER,
        )
        return None if first == _NEVER else first

    def expire(self, *, now: float) -> list[Failure]:
        """End the requests that timed out, cancel them at the peer, and return their failures."""
        late = [
            (id, pending)
            for id, pending in self._pending.items()
            if not pending.pauses and (pending.idle_deadline <= now or pending.hard_deadline <= now)
        ]
        failures = []
        for id, pending in late:
            del self._pending[id]
            self._unanswered.append(id)
            self._notify_cancelled(id, pending, "timeout")
            waited = "the hard limit" if pending.hard_deadline <= now else f"{pending.timeout:g} s"
            failures.append(
                Failure(id, RequestTimeout(f"no answer to {pending.method} within {waited}"))
            )
        return failures

    # Closing

    def close(self, error: InterlockError | None = None) -> list[Failure]:
        """End the connection; return a failure for each of our requests that has not ended."""
        if self.closed is not None:
            return []
        self.closed = error or ConnectionClosed("the connection is closed")
        # Each failure gets a copy of the error, because each traceback is different.
        failures = [Failure(id, copy(self.closed)) for id in self._pending]
        self._pending.clear()
        self._running.clear()
        self.outbox.clear()
        return failures

    @property
    def pending(self) -> int:
        return len(self._pending)

    @property
    def running(self) -> int:
        """The number of the peer's requests that have not been answered."""
        return len(self._running)


def _answered_by(frame: bytes, request: RequestId | None, batch: _Batch | None) -> RequestId | None:
    """Return the id of our request that a message answers, although it cannot be decoded."""
    if request is not None and batch is None:
        return request
    found = envelope.id_of(frame)  # the rest of a batch may be valid
    return None if request is not None and found != request else found


_UNKNOWN = _Batch()
