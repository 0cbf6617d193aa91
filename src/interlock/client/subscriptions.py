"""Streams of `subscriptions/listen`, on which a modern server reports changes.

While the connection is open, a stream that ends is reopened, because servers are redeployed and
proxies close idle connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from interlock.aio import Backoff, start_detached
from interlock.connection import Connection
from interlock.errors import (
    AuthError,
    InterlockError,
    LocalProtocolError,
    RemoteError,
    RequestTimeout,
    StreamEnded,
)
from interlock.protocol.envelope import encode
from interlock.types import ListenParams, RequestId, SubscriptionFilter

MAX_SUBSCRIPTIONS = 1_000

# Seconds before a stream is reopened, and the limit on consecutive attempts. A stream that lasted a
# minute resets the number of attempts.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
MAX_ATTEMPTS = 10
RESET_AFTER = 60.0

_log = logging.getLogger("interlock.client")


class _Stream:
    """One `subscriptions/listen` stream: its request, and the task that keeps it open."""

    def __init__(self, params: bytes, connection: Connection) -> None:
        self.params = params
        self.connection = connection
        self.task: asyncio.Task[None]
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting = 0  # number of callers that wait until the stream is open
        self.listen(connection)

    def listen(self, connection: Connection) -> None:
        self.connection = connection
        self.id, self.ended = connection.start("subscriptions/listen", self.params)


class Subscriptions:
    """One client's open streams, each under a key that the caller chooses.

    Args:
        connection: Returns the current connection.
        on_gap: Called after a stream was reopened, because notifications may have been missed.
    """

    def __init__(self, connection: Callable[[], Connection], on_gap: Callable[[], None]) -> None:
        self._connection = connection
        self._on_gap = on_gap
        self._streams: dict[str, _Stream] = {}
        # Set when the server acknowledges a stream; keyed by the id of the stream's request.
        self._acknowledged: dict[RequestId, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # tasks for open and ending streams

    async def open(self, key: str, wanted: SubscriptionFilter, *, timeout: float) -> None:
        """Open a stream unless it is already open; wait until the server has acknowledged it.

        Raises:
            RequestTimeout: No acknowledgement arrived within `timeout` seconds.
            InterlockError: The server refused the subscription, or the connection ended.
        """
        stream = self._streams.get(key) or self._begin(key, wanted)
        if stream.opened.done():
            return
        id = stream.id
        stream.waiting += 1
        try:
            await _wait(stream.opened, stream.task, timeout)
        except BaseException:
            if stream.waiting == 1 and self._streams.get(key) is stream:  # no other caller waits
                self.close(key)
            raise
        finally:
            stream.waiting -= 1
            if not stream.waiting:
                self._acknowledged.pop(id, None)

    def _begin(self, key: str, wanted: SubscriptionFilter) -> _Stream:
        if len(self._streams) >= MAX_SUBSCRIPTIONS:
            raise LocalProtocolError(
                f"too many subscriptions (limit {MAX_SUBSCRIPTIONS}); end some first"
            )
        stream = _Stream(encode(ListenParams(notifications=wanted)), self._connection())
        self._acknowledged[stream.id] = stream.opened
        self._streams[key] = stream
        stream.task = task = start_detached(self._hold(key, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Clean up in a callback, because `_hold` never runs if it is cancelled right after its
        # creation.
        task.add_done_callback(lambda _: self._forget(key, stream))
        return stream

    async def _hold(self, key: str, stream: _Stream) -> None:
        """Keep the stream open until the client closes it, or it can no longer be opened."""
        if not await self._last(key, stream, opening=True):
            return
        loop = asyncio.get_running_loop()
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, RESET_AFTER)
        while stream.connection.protocol.closed is None:
            pause = backoff.next_pause(loop.time())
            if backoff.attempts > MAX_ATTEMPTS:
                return
            await asyncio.sleep(pause)
            stream.listen(self._connection())
            self._acknowledged[stream.id] = holds = loop.create_future()
            holds.add_done_callback(lambda _: self._on_gap())
            try:
                if not await self._last(key, stream):
                    return
            finally:
                self._acknowledged.pop(stream.id, None)

    async def _last(self, key: str, stream: _Stream, *, opening: bool = False) -> bool:
        """Wait until the stream ends; return whether it may be reopened."""
        try:
            await stream.ended
            _log.info("subscription %r was ended by the server", key)
        except InterlockError as error:
            if opening and stream.id in self._acknowledged:
                raise  # the caller that opens the stream handles the error
            # Do not log the error's text, because the server chooses it.
            _log.info("subscription %r ended: %s", key, type(error).__name__)
            return not isinstance(error, AuthError | RemoteError)
        holds = self._acknowledged.get(stream.id)
        return not opening or holds is None or holds.done()

    def _forget(self, key: str, stream: _Stream) -> None:
        stream.connection.forget(stream.id)
        if self._streams.get(key) is stream:  # no new stream has replaced it
            del self._streams[key]
        if not stream.task.cancelled():
            stream.task.exception()  # marks the error as retrieved, even if no caller waits

    def acknowledge(self, id: RequestId) -> None:
        holds = self._acknowledged.get(id)
        if holds is not None and not holds.done():
            holds.set_result(None)

    def move(self) -> None:
        """Reopen all streams on the new connection."""
        for stream in self._streams.values():
            stream.connection.request_failed(stream.id, StreamEnded("the connection was replaced"))

    def close(self, key: str) -> None:
        stream = self._streams.pop(key, None)
        if stream is not None:
            stream.task.cancel()

    def close_all(self) -> None:
        for key in list(self._streams):
            self.close(key)

    async def wait_closed(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _wait(holds: asyncio.Future[None], stream: asyncio.Task[None], timeout: float) -> None:
    """Wait until a stream is acknowledged; raise the stream's error if it ends before that."""
    await asyncio.wait({stream, holds}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    if not holds.done():
        if stream.done():
            if not stream.cancelled():
                stream.result()
            raise RequestTimeout("the subscription ended before it was acknowledged")
        raise RequestTimeout(f"subscription not acknowledged within {timeout:g} s")
