"""A protocol, a transport and an event loop: requests wait here, handlers run here.

Rules:

1. Any task may call `request` or `close`. No task, timer or cancel scope is tied to a caller.
2. One timer serves all deadlines. Frames queued in one turn of the loop are sent in bursts, the
   last one by a callback at the end of the turn.
3. A call of a tool is handed over to a server in this program without a frame. Its answer is a
   frame, and so is everything else.
4. When either side ends the connection, every open request fails at once and every running
   handler is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from time import monotonic
from typing import Any, TypeVar

from msgspec import Raw

from interlock import aio
from interlock.errors import MAX_WORDS, ConnectionClosed, InterlockError, RemoteProtocolError
from interlock.protocol import (
    Answer,
    Cancellation,
    Failure,
    Notification,
    Overrun,
    Progress,
    ProgressHandler,
    Protocol,
    Request,
    RequestOptions,
    Stray,
)
from interlock.transports import Transport
from interlock.types import RequestId

RequestHandler = Callable[[Request], Coroutine[Any, Any, None]]
NotificationHandler = Callable[[Notification], None]
LossHandler = Callable[[InterlockError], None]

# Number of queued frames that are sent before the end of the turn, so that the peer can begin.
BURST = 16
HANDLER_PATIENCE = 1.0  # seconds that `close` waits for cancelled handlers

_NEVER = float("inf")
_DEFAULTS = RequestOptions()
_E = TypeVar("_E")
_log = logging.getLogger("interlock.client")


class Connection:
    """One open connection.

    Args:
        protocol: A new protocol.
        transport: A transport that is not open yet.
        on_request: Answers the peer's requests by `protocol.reply` and `flush`; each call
            runs in a task of its own.
        on_notification: Called with the peer's notifications. Must not block.
        on_loss: Called once if the connection ends without `close`.
    """

    def __init__(
        self,
        protocol: Protocol,
        transport: Transport,
        *,
        on_request: RequestHandler,
        on_notification: NotificationHandler,
        on_loss: LossHandler,
    ) -> None:
        self.protocol = protocol
        self.transport = transport
        self._on_request = on_request
        self._on_notification = on_notification
        self._on_loss = on_loss
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[RequestId, asyncio.Future[Raw]] = {}
        self._progress: dict[RequestId, ProgressHandler] = {}
        self._answers: dict[RequestId, object] = {}
        self._handlers: set[asyncio.Task[None]] = set()  # each named by its request id
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        self._flushing = False
        self._peer: Connection | None = None  # gets calls of tools without frames

    async def open(self) -> None:
        """Connect to the peer.

        Raises:
            InterlockError: The same errors as `Transport.open`.
        """
        await self.transport.open(self)

    def hand_over_calls(self) -> None:
        """Send no frames for calls from now on, if the peer is open in this program."""
        peer = getattr(self.transport, "peer", None)
        if isinstance(peer, Connection):
            self._peer = peer
            self.protocol.hands_over_calls = True

    # Requests

    def start(
        self,
        method: str,
        params: bytes = b"{}",
        options: RequestOptions = _DEFAULTS,
    ) -> tuple[RequestId, asyncio.Future[Raw]]:
        """Send a request; the future gets its result. To stop waiting, call `forget`.

        Args:
            method: Spec name.
            params: An encoded object, without `_meta`.
            options: Timeouts, `_meta`, progress handler and other options of the request.

        Raises:
            ConnectionClosed: The connection has ended.
        """
        now = monotonic()
        peer = self._peer if method == "tools/call" else None
        id = self.protocol.request(method, params, options, now=now)
        timeout, hard_timeout, progress = options.timeout, options.hard_timeout, options.progress
        try:
            self._waiting[id] = future = self._loop.create_future()
            if progress is not None:
                self._progress[id] = progress
            if options.answers is not None:
                self._answers[id] = options.answers
            left = self._timer_at - now  # until the timer fires in any case
            if (timeout is not None and timeout < left) or (
                hard_timeout is not None and hard_timeout < left
            ):
                self._arm()
            if peer is None:
                self.flush()
            else:
                peer.request_received(self.protocol.unframed)
        except MemoryError:  # the caller has no id to forget
            self.protocol.cancel(id)
            self.forget(id)
            raise
        return id, future

    def forget(self, id: RequestId, reason: str = "") -> None:
        """Stop waiting for request `id`; cancel it if the peer has not answered yet."""
        self._progress.pop(id, None)
        self._answers.pop(id, None)
        if self._waiting.pop(id, None) is not None:
            self.transport.forget(id)
            if self.protocol.cancel(id, reason):
                self.flush()

    async def request(
        self, method: str, params: bytes = b"{}", options: RequestOptions = _DEFAULTS
    ) -> Raw:
        """Send a request and wait for its result, still encoded. Arguments as for `start`.

        Cancelling the waiting task cancels the request. If a handler waits here and its own request
        is cancelled, the peer's reason is passed on.

        Raises:
            RemoteError: The peer answered with an error.
            RequestTimeout: No answer in time.
            ConnectionClosed: The connection ended first.
        """
        id, future = self.start(method, params, options)
        try:
            return await future
        except asyncio.CancelledError as cancelled:
            self.forget(id, cancel_reason(cancelled))
            raise
        finally:
            self._answers.pop(id, None)
            if id in self._waiting or options.progress is not None:
                self.forget(id)

    def answers_during(self, request: RequestId | None) -> set[object]:
        """Return the `answers` of one of our requests; for None, those of all open requests."""
        if request is None:
            return set(self._answers.values())
        return {self._answers[request]} if request in self._answers else set()

    @contextmanager
    def paused(self, answers: object) -> Iterator[None]:
        """Pause the deadlines of requests with these `answers` while a person is asked."""
        ids = [id for id, each in self._answers.items() if each is answers]
        for id in ids:
            self.protocol.pause(id, now=monotonic())
        try:
            yield
        finally:
            for id in ids:
                self.protocol.resume(id, now=monotonic())
            self._arm()

    def notify(self, method: str, params: bytes = b"{}") -> None:
        self.protocol.notify(method, params)
        self.flush()

    def flush(self) -> None:
        """Send queued frames: the first of a turn of the loop at once, the rest in bursts."""
        try:
            if not self._flushing:
                self._loop.call_soon(self._flush)
                self._flushing = True
            elif len(self.protocol.outbox) < BURST:
                return
            if self.protocol.outbox:  # the body of `frames_to_send`, to save a call
                frames, self.protocol.outbox = self.protocol.outbox, []
                self.transport.send(frames)
        except MemoryError:
            self._give_up()

    def _flush(self) -> None:
        self._flushing = False
        try:
            if self.protocol.outbox:
                self.transport.send(self.protocol.frames_to_send())
        except MemoryError:
            self._give_up()

    def _give_up(self) -> None:
        # Frames may be lost. Abort in a later turn of the loop: `send` must not end the connection
        # while its callers use it.
        self._loop.call_soon(self.abort, ConnectionClosed("out of memory while sending"))

    # Receiving

    def frames_received(self, frames: list[bytes], request: RequestId | None = None) -> None:
        """Dispatch frames that the transport received."""
        now = monotonic()
        receive = self.protocol.receive
        for frame in frames:
            for event in receive(frame, now=now, request=request):
                if isinstance(event, Request):
                    task = aio.start(self._on_request(event), loop=self._loop, name=repr(event.id))
                    if not task.done():
                        self._handlers.add(task)
                        task.add_done_callback(self._handlers.discard)
                elif isinstance(event, Answer):
                    future = self._waiting.get(event.id)
                    if future is not None and not future.done():
                        future.set_result(event.result)
                    self._waiting.pop(event.id, None)  # last: memory may run out above
                else:
                    self._dispatch(event)
        if self.protocol.outbox:
            self.flush()

    def request_received(self, request: Request) -> None:
        """Handle a request of a peer in this program, in the next turn of the loop."""
        if self.protocol.accept(request):
            task = self._loop.create_task(self._on_request(request), name=repr(request.id))
            self._handlers.add(task)
            task.add_done_callback(self._handlers.discard)
        else:
            self.flush()

    def _dispatch(
        self, event: Failure | Progress | Cancellation | Overrun | Stray | Notification
    ) -> None:
        if isinstance(event, Failure):
            self._fail(event)
        elif isinstance(event, Progress):
            handler = self._progress.get(event.id)
            if handler is not None:
                _call(handler, event)
        elif isinstance(event, Cancellation):
            self._cancel_handler(event)
        elif isinstance(event, Overrun):
            words = self.transport.diagnostics()
            output = f"; last output: {words}" if words else ""
            self.abort(RemoteProtocolError(f"{event.error}{output}"))
        elif isinstance(event, Stray):
            if self.protocol.dropped["error without an id"] == 1:  # a peer could fill the log
                text = "the peer sent an error without an id while %d requests had no answer: %s"
                _log.warning(text, event.open, str(event.error)[:MAX_WORDS])
        else:
            _call(self._on_notification, event)

    def _cancel_handler(self, event: Cancellation) -> None:
        # Cancellations are rare, so a search through all tasks is cheap enough. A task with this
        # name that is done, or has replied, belongs to an older request: peers reuse ids.
        for task in self._handlers:
            if task.get_name() == repr(event.id):
                task.cancel(event)  # see `cancel_reason`

    def awaits(self, id: RequestId) -> bool:
        """Return whether our request `id` is still open."""
        return id in self._waiting

    def request_failed(self, id: RequestId, error: InterlockError) -> None:
        """Fail a request; the transport calls this when no response can arrive any more."""
        self.protocol.fail(id, error)
        self._fail(Failure(id, error))

    def _fail(self, failure: Failure) -> None:
        future = self._waiting.get(failure.id)
        if future is not None and not future.done():
            future.set_exception(failure.error)
        self._waiting.pop(failure.id, None)

    # Time

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._timer_at = self.protocol.deadline() or _NEVER
        if self._timer_at != _NEVER:
            self._timer = self._loop.call_later(self._timer_at - monotonic(), self._expire)

    def _expire(self) -> None:
        try:
            for failure in self.protocol.expire(now=monotonic()):
                self._fail(failure)
                self.transport.forget(failure.id)
            self.flush()
            self._arm()
        except MemoryError:
            self._give_up()

    # Closing

    def connection_lost(self, error: InterlockError) -> None:
        """Fail all open requests; called by the transport."""
        self._end(error)
        _call(self._on_loss, error)

    def abort(self, error: InterlockError) -> None:
        """End the connection now; all open requests fail with `error`."""
        self.transport.abort(error)

    async def close(self) -> None:
        """End the connection and its handlers. Any task may call this, also more than once."""
        self._flush()
        handlers = self._handlers - {
            asyncio.current_task()
        }  # a handler may close its own connection
        self._end(ConnectionClosed("the connection was closed"))
        await self.transport.close()
        if handlers:
            await asyncio.wait(handlers, timeout=HANDLER_PATIENCE)

    async def settle(self, timeout: float) -> None:
        """Wait at most `timeout` seconds until the peer's running requests are answered."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._handlers:
                    await asyncio.wait(self._handlers)

    async def retire(self) -> None:
        """Wait until our open requests have ended, then close."""
        try:
            if self._waiting:
                await asyncio.wait(list(self._waiting.values()))
        finally:
            await self.close()

    def _end(self, error: InterlockError) -> None:
        self.protocol.close(error)
        for id in list(self._waiting):  # including those that the protocol has forgotten
            self._fail(Failure(id, copy(error)))
        self._progress.clear()
        for task in list(self._handlers):
            if task is not asyncio.current_task():  # a handler may close its own connection
                task.cancel()
        self._arm()


def cancel_reason(cancelled: asyncio.CancelledError) -> str:
    """Return the peer's reason for cancelling its request; "" for any other cancellation."""
    event = cancelled.args[0] if cancelled.args else None
    return event.reason if isinstance(event, Cancellation) else ""


def _call(handler: Callable[[_E], None], event: _E) -> None:
    """Call a user's function; its failure must not harm the connection."""
    try:
        handler(event)
    except Exception as error:
        loop = asyncio.get_running_loop()
        name = getattr(handler, "__qualname__", repr(handler))
        loop.call_exception_handler({"message": f"{name} failed", "exception": error})
