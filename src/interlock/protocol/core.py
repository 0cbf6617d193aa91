"""One connection without its network: bytes and time in, events and bytes out.

Rules:

1. It opens nothing, awaits nothing and reads no clock: `now` is an argument, in seconds.
2. Every request that `request` accepts ends exactly once: as `Answer` or `Failure`, or by
   `cancel`, which ends it silently.
3. Ids match by type and value. An answer to nothing is counted in `dropped` and forgotten.
4. A peer's request is answered at most once, and not at all after it was cancelled.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from copy import copy
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

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
from interlock.protocol import envelope
from interlock.protocol.envelope import Envelope, RequestFrame
from interlock.revisions import INTERNAL_ERROR, INVALID_REQUEST
from interlock.types import CancelledParams, ErrorObject, ProgressParams, RequestId

# Requests of the peer that may run at once; the next one is refused.
MAX_RUNNING = 1_000

# More unreadable messages than this within a minute are an `Overrun`.
MAX_GARBAGE = 100
GARBAGE_WINDOW = 60.0  # seconds

# Progress of one request within a second. More is dropped: what comes after it says it again.
MAX_PROGRESS = 1_000

_EMPTY = Raw(b"{}")
_NULL = Raw(b"null")  # some write both members, one of them null
_NEVER = float("inf")
_decode_error = msgspec.json.Decoder(ErrorObject).decode
_decode_progress = msgspec.json.Decoder(ProgressParams).decode
_decode_cancelled = msgspec.json.Decoder(CancelledParams).decode

# Events


class Answer(Struct, frozen=True, gc=False):
    """Our request `id` succeeded. `result` is still encoded."""

    id: RequestId
    result: Raw


class Failure(Struct, frozen=True):
    """Our request `id` failed: `RemoteError`, `RequestTimeout`, `ConnectionClosed`, ..."""

    id: RequestId
    error: InterlockError


class Progress(Struct, frozen=True, gc=False):
    """Our request `id` moves on."""

    id: RequestId
    progress: float
    total: float | None = None
    message: str | None = None


class Request(Struct, frozen=True, gc=False):
    """A request of the peer, to be answered by `reply` or `reply_error`.

    `during` is the request of ours on whose stream it came; None where a transport has one
    stream for everything.
    """

    id: RequestId
    method: str
    params: Raw
    during: RequestId | None = None


class Cancellation(Struct, frozen=True, gc=False):
    """The peer cancelled its request `id`, which must not be answered any more."""

    id: RequestId
    reason: str = ""


class Notification(Struct, frozen=True, gc=False):
    """A notification of the peer other than progress and cancellation.

    `during` is as for `Request`.
    """

    method: str
    params: Raw
    during: RequestId | None = None


class Overrun(Struct, frozen=True):
    """The peer sends little but garbage; the connection had better end for this reason."""

    error: RemoteProtocolError


Event = Answer | Failure | Progress | Request | Cancellation | Notification | Overrun

ProgressHandler = Callable[[Progress], None]


class RequestOptions(Struct, frozen=True):
    """How one request is sent, and how long to wait for its answer.

    Attributes:
        timeout: Seconds without progress until the request fails; None for no limit.
        hard_timeout: Seconds in all, progress or not; None for no limit.
        progress: Ask for progress and call this with it.
        meta: Further members of `_meta`, encoded without braces.
        replace_meta: Send `meta` in place of the connection's own members, as on behalf of
            another client.
        name: The member of `params` that the HTTP header Mcp-Name repeats, where
            `headers.NAMES` has the method.
        idempotent: Sending it twice has the effect of sending it once, so it may be retried.
        answers: Answers what the peer asks during the request; see `Connection.answers_during`.
    """

    timeout: float | None = None
    hard_timeout: float | None = None
    progress: ProgressHandler | None = None
    meta: bytes = b""
    replace_meta: bool = False
    name: str | None = None
    idempotent: bool = False
    answers: object | None = None


_DEFAULTS = RequestOptions()


class _Pending(Struct, gc=False):
    """One request of ours that has not ended."""

    method: str
    timeout: float | None  # seconds without progress
    idle_deadline: float
    hard_deadline: float
    progress: float | None = None  # the last one told; None when progress was not asked for
    second: float = -_NEVER  # since when it is counted
    told: int = 0  # progress since then


class _Batch(Struct):
    """The answers to a batch, sent together when the last one is there."""

    open: int = 1  # its requests without answer, and one for as long as it is being read
    replies: list[bytes] = []


class Protocol:
    """One MCP connection, either side of it.

    Args:
        meta: Members of `_meta` for each request, encoded without braces. Modern clients
            state revision and capabilities in it.
        batches: Take JSON-RPC batches, as revision 2025-03-26 demands.
        answers_garbage: Answer what cannot be read with an error without id, as servers do.
        dropped: Where what is dropped is counted; a counter of its own when None.

    Attributes:
        dropped: How many messages were dropped, by reason.
        outbox: Frames that are ready for the wire; see `frames_to_send`.
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
        self._running: dict[RequestId, _Batch | None] = {}
        self.outbox: list[bytes] = []
        self._garbage: deque[float] = deque(maxlen=MAX_GARBAGE + 1)

    # Sending

    def request(
        self,
        method: str,
        params: bytes = b"{}",
        options: RequestOptions = _DEFAULTS,
        *,
        now: float,
    ) -> int:
        """Queue a request for the peer and return its id.

        Args:
            method: Spec name, such as "tools/list".
            params: An encoded object, without `_meta`.
            options: Its timeouts, `_meta` and the like. The id is the progress token.
            now: Monotonic clock, seconds.

        Returns:
            The id, unique for this connection, counting from 1.

        Raises:
            LocalProtocolError: JSON-RPC keeps method names in "rpc." for itself.
            ConnectionClosed: `close` was called; nothing can be sent any more.

        Spec 2026-07-28: basic/patterns/cancellation, "Timeouts".
        """
        if self.closed is not None:
            raise copy(self.closed)
        if method.startswith("rpc."):
            raise LocalProtocolError(f"method {method!r} is reserved by JSON-RPC")
        self._last_id = id = self._last_id + 1
        meta, timeout, hard_timeout = options.meta, options.timeout, options.hard_timeout
        if not meta:
            meta = self.meta
        elif self.meta and not options.replace_meta:
            meta = b"%b,%b" % (self.meta, meta)
        members = meta
        if options.progress is not None:
            token = b'"progressToken":%d' % id
            members = b"%b,%b" % (meta, token) if meta else token
        # Encode first: that may run out of memory.
        frame = RequestFrame(envelope.request(id, method, envelope.with_meta(params, members)))
        frame.id, frame.method, frame.name, frame.meta = id, method, options.name, meta
        self._pending[id] = _Pending(
            method,
            timeout,
            _NEVER if timeout is None else now + timeout,
            _NEVER if hard_timeout is None else now + hard_timeout,
            None if options.progress is None else -_NEVER,
        )
        self.outbox.append(frame)
        return id

    def notify(self, method: str, params: bytes = b"{}") -> None:
        """Queue a notification. After `close` it is dropped."""
        if self.closed is None:
            self.outbox.append(envelope.notification(method, params))

    def cancel(self, id: RequestId, reason: str = "") -> bool:
        """End our request `id` silently and tell the peer. False when it has ended already."""
        pending = self._pending.pop(id, None)
        if pending is None:
            return False
        self._tell_cancelled(id, pending, reason)
        return True

    def reply(self, id: RequestId, result: bytes) -> None:
        """Queue the answer to the peer's request `id`; dropped when it was cancelled."""
        written = b"%d" % id if type(id) is int else envelope.encode(id)
        frame = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (written, result)
        batch = self._running.get(id, _UNKNOWN)
        if batch is None:
            self.outbox.append(frame)
        else:
            self._finish(batch, frame)
        self._running.pop(id, None)  # last, so that an error may take the place of the result

    def reply_error(self, id: RequestId, code: int, message: str, data: Any = None) -> None:
        """Queue an error as the answer to the peer's request `id`; dropped when cancelled."""
        batch = self._running.pop(id, _UNKNOWN)
        self._finish(batch, envelope.error(id, code, message, data))

    def ignore(self, id: RequestId) -> None:
        """Forget the peer's request `id`, which it had no right to send."""
        batch = self._running.pop(id, None)
        if batch is not None:
            self._add_to_batch(batch, None)
        self.dropped["request out of place"] += 1

    def frames_to_send(self) -> list[bytes]:
        """Take what is ready for the wire; the outbox is empty afterwards."""
        outbox, self.outbox = self.outbox, []
        return outbox

    def _tell_cancelled(self, id: RequestId, pending: _Pending, reason: str) -> None:
        # A handshake is never cancelled; before it, an old server takes no other message.
        if pending.method not in ("initialize", "server/discover"):
            params = CancelledParams(request_id=id, reason=reason or None)
            self.notify("notifications/cancelled", envelope.encode(params))

    def _finish(self, batch: _Batch | None, frame: bytes) -> None:
        if batch is _UNKNOWN:
            self.dropped["reply to nothing"] += 1
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
        """Take one frame (without its newline) and return what it means.

        Nothing that a peer sends raises: what is not acceptable is counted in `dropped`, and
        fails the request that it answers, if that can be told.

        Args:
            frame: One message.
            now: Monotonic clock, seconds.
            request: The request of ours on whose stream it came, the only one that it may
                answer; None where the stream is for all.
            batch: The batch that the message is a part of.
        """
        if self.closed is not None:
            return []
        if frame[:1] == b"[" and self.batches and batch is None:
            return self._receive_batch(frame, now, request)
        try:
            message = envelope.decode(frame)
        except (ParseError, MemoryError) as error:
            answered = request
            if request is None or batch is not None:  # a batch has more than the answer in it
                answered = envelope.id_of(frame)
                if request is not None and answered != request:
                    answered = None
            if isinstance(error, MemoryError) or isinstance(frame, envelope.Cut):
                return self._receive_too_much(answered, envelope.id_of_request(frame), batch)
            return self._receive_garbage(answered, error, now, batch)
        if message.method is UNSET:
            if request is not None and message.id != request:
                is_nameless = message.id is None or message.id is UNSET
                if not is_nameless or message.error is UNSET:
                    self.dropped["answer to another request"] += 1
                    return []
                message.id = request  # who could not read a request cannot name it
            return self._receive_response(message)
        id, method = message.id, message.method
        params = _EMPTY if message.params is UNSET else message.params
        if id is UNSET:
            return self._receive_notification(method, params, now, request)
        if id is None:
            null = ParseError('"id" is null', INVALID_REQUEST)
            return self._receive_garbage(None, null, now, batch)
        if id in self._running:
            # An answer with this id would be taken for the answer to the first request.
            taken = ParseError(f"id {id!r} belongs to a request that still runs", INVALID_REQUEST)
            return self._receive_garbage(None, taken, now, batch)
        self._running[id] = batch
        if batch is not None:
            batch.open += 1
            if method == "initialize":
                self.reply_error(id, INVALID_REQUEST, "initialize must not be part of a batch")
                return []
        if len(self._running) > MAX_RUNNING:
            self.dropped["too many requests"] += 1
            self.reply_error(id, INTERNAL_ERROR, f"over {MAX_RUNNING} requests at once; try later")
            return []
        return [Request(id, method, params, request)]

    def _receive_batch(self, frame: bytes, now: float, request: RequestId | None) -> list[Event]:
        try:
            messages = envelope.split_batch(frame)
        except ParseError as error:
            return self._receive_garbage(request, error, now)
        batch = _Batch()
        events: list[Event] = []
        for message in messages:
            events += self.receive(message, now=now, request=request, batch=batch)
        self._add_to_batch(batch, None)
        return events

    def _receive_response(self, message: Envelope) -> list[Event]:
        id = message.id
        if id is UNSET or id is None or self._pending.pop(id, None) is None:
            self.dropped["answer to nothing"] += 1
            return []
        result, error = message.result, message.error
        if result is not UNSET and (error is UNSET or error == _NULL):
            return [Answer(id, result)]
        if error is UNSET or (result is not UNSET and result != _NULL):
            self.dropped["malformed response"] += 1
            return [Failure(id, RemoteProtocolError("response needs either result or error"))]
        try:
            decoded = _decode_error(error)
        except (msgspec.DecodeError, RecursionError) as reason:
            self.dropped["malformed response"] += 1
            return [Failure(id, RemoteProtocolError(f"malformed error in response: {reason}"))]
        return [Failure(id, RemoteError(decoded.code, decoded.message, decoded.data))]

    def fail(self, id: RequestId, error: InterlockError) -> Failure | None:
        """End our request `id`, which nothing answers any more; None when it has ended."""
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
            told = _decode_progress(params)
        except (msgspec.DecodeError, RecursionError):
            self.dropped["malformed notification"] += 1
            return []
        pending = self._pending.get(told.progress_token)
        if pending is None or pending.progress is None or told.progress <= pending.progress:
            self.dropped["progress of nothing"] += 1
            return []
        pending.progress = told.progress
        if pending.timeout is not None:
            pending.idle_deadline = now + pending.timeout
        if now - pending.second >= 1.0:
            pending.second, pending.told = now, 0
        pending.told += 1
        if pending.told > MAX_PROGRESS:
            self.dropped["progress too often"] += 1
            return []
        return [Progress(told.progress_token, told.progress, told.total, told.message)]

    def _receive_cancelled(self, params: Raw) -> list[Event]:
        try:
            told = _decode_cancelled(params)
        except (msgspec.DecodeError, RecursionError):
            self.dropped["malformed notification"] += 1
            return []
        if told.request_id is None or told.request_id not in self._running:
            self.dropped["cancellation of nothing"] += 1
            return []
        batch = self._running.pop(told.request_id)
        if batch is not None:
            self._add_to_batch(batch, None)
        return [Cancellation(told.request_id, told.reason or "")]

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
        self, id: RequestId | None, error: ParseError, now: float, batch: _Batch | None = None
    ) -> list[Event]:
        self.dropped["garbage"] += 1
        self._garbage.append(now)
        if len(self._garbage) > MAX_GARBAGE and now - self._garbage[0] < GARBAGE_WINDOW:
            limit = f"{MAX_GARBAGE} unreadable messages within {GARBAGE_WINDOW:g} s"
            return [Overrun(RemoteProtocolError(f"over {limit}, the last one: {error}"))]
        if id is not None and self._pending.pop(id, None) is not None:
            return [Failure(id, error)]
        if self.answers_garbage:
            replies = self.outbox if batch is None else batch.replies
            replies.append(envelope.error(None, error.code, str(error)))
        return []

    # Time

    def deadline(self) -> float | None:
        """When `expire` has something to do, by the clock of `now`; None for never."""
        first = min(
            (min(each.idle_deadline, each.hard_deadline) for each in self._pending.values()),
            default=_NEVER,
        )
        return None if first == _NEVER else first

    def expire(self, *, now: float) -> list[Failure]:
        """Give up the requests whose time is over, tell the peer, and return their failures."""
        late = [
            (id, pending)
            for id, pending in self._pending.items()
            if pending.idle_deadline <= now or pending.hard_deadline <= now
        ]
        failures = []
        for id, pending in late:
            del self._pending[id]
            self._tell_cancelled(id, pending, "timeout")
            waited = "the hard limit" if pending.hard_deadline <= now else f"{pending.timeout:g} s"
            failures.append(
                Failure(id, RequestTimeout(f"no answer to {pending.method} within {waited}"))
            )
        return failures

    # Closing

    def close(self, error: InterlockError | None = None) -> list[Failure]:
        """End the connection: all open requests fail with `error`; nothing is sent any more."""
        if self.closed is not None:
            return []
        self.closed = error or ConnectionClosed("the connection is closed")
        # Copies: each waiter's traceback is its own.
        failures = [Failure(id, copy(self.closed)) for id in self._pending]
        self._pending.clear()
        self._running.clear()
        self.outbox.clear()
        return failures

    def is_pending(self, id: RequestId) -> bool:
        """Whether our request `id` has not ended."""
        return id in self._pending

    @property
    def pending(self) -> int:
        """How many of our requests have not ended."""
        return len(self._pending)

    @property
    def running(self) -> int:
        """How many of the peer's requests have not been answered."""
        return len(self._running)


_UNKNOWN = _Batch()
