"""Streams of `subscriptions/listen`, by which a modern server tells of changes.

One that ends by itself is asked for again, for as long as the connection lives: servers are
deployed anew, and proxies cut what is idle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

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

# Pauses before a stream is asked for again, and how often in a row. One that held for a minute
# was well.
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
MAX_ATTEMPTS = 10
WELL = 60.0

_log = logging.getLogger("interlock.client")


class _Stream:
    """One stream: the request that it is the answer to, and the task that keeps it."""

    def __init__(self, params: bytes, connection: Connection) -> None:
        self.params = params
        self.connection = connection
        self.task: asyncio.Task[None]
        self.listen(connection)

    def listen(self, connection: Connection) -> None:
        """Send the request."""
        self.connection = connection
        self.id, self.ended = connection.start("subscriptions/listen", self.params)


class Subscriptions:
    """The open streams of one client, by a key that the caller chooses.

    Args:
        connection: Gives the connection as it is now.
        on_gap: Told when a stream goes on after it had ended: changes may have been missed.
    """

    def __init__(self, connection: Callable[[], Connection], on_gap: Callable[[], None]) -> None:
        self._connection = connection
        self._on_gap = on_gap
        self._streams: dict[str, _Stream] = {}
        self._opening: dict[str, asyncio.Future[None]] = {}  # until it is acknowledged
        self._acknowledged: dict[RequestId, asyncio.Future[None]] = {}  # the same, by id
        self._tasks: set[asyncio.Task[None]] = set()  # of streams, and of those that are ending

    async def open(self, key: str, wanted: SubscriptionFilter, *, timeout: float) -> None:
        """Open a stream and wait until the server has acknowledged it. Open ones stay.

        Raises:
            RequestTimeout: No acknowledgement within `timeout` seconds.
            InterlockError: The server refused, or the connection ended.
        """
        if key in self._streams:
            opening = self._opening.get(key)
            if opening is not None:  # by somebody else
                await _wait(opening, self._streams[key].task, timeout)
            return
        if len(self._streams) >= MAX_SUBSCRIPTIONS:
            raise LocalProtocolError(f"over {MAX_SUBSCRIPTIONS} subscriptions; end some first")
        stream = _Stream(encode(ListenParams(notifications=wanted)), self._connection())
        first = stream.id
        holds: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._acknowledged[first] = self._opening[key] = holds
        self._streams[key] = stream
        stream.task = task = asyncio.create_task(self._hold(key, stream))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Not in `_hold`, which never runs when it is cancelled in the turn in which it is made.
        task.add_done_callback(lambda _: self._forget(key, stream))
        try:
            await _wait(holds, task, timeout)
        except BaseException:
            task.cancel()
            raise
        finally:
            self._acknowledged.pop(first, None)
            if self._opening.get(key) is holds:
                del self._opening[key]

    async def _hold(self, key: str, stream: _Stream) -> None:
        """Keep the stream until it is cancelled here, or cannot be had any more."""
        if not await self._last(key, stream, opening=True):
            return
        loop = asyncio.get_running_loop()
        pause, attempts = FIRST_PAUSE, 0
        while attempts < MAX_ATTEMPTS and stream.connection.protocol.closed is None:
            await asyncio.sleep(pause)
            began = loop.time()
            stream.listen(self._connection())
            self._acknowledged[stream.id] = holds = loop.create_future()
            holds.add_done_callback(lambda _: self._on_gap())
            try:
                if not await self._last(key, stream):
                    return
            finally:
                self._acknowledged.pop(stream.id, None)
            attempts, pause = attempts + 1, min(2 * pause, LONGEST_PAUSE)
            if loop.time() - began > WELL:
                attempts, pause = 0, FIRST_PAUSE

    async def _last(self, key: str, stream: _Stream, *, opening: bool = False) -> bool:
        """Wait until the stream ends; tell whether it may be asked for again."""
        try:
            await stream.ended
            _log.info("subscription %r was ended by the server", key)
        except InterlockError as error:
            if opening and stream.id in self._acknowledged:
                raise  # to whoever opens it
            # Not its text: a server that goes away may have said anything before.
            _log.info("subscription %r ended: %s", key, type(error).__name__)
            return not isinstance(error, AuthError | RemoteError)
        holds = self._acknowledged.get(stream.id)
        return not opening or holds is None or holds.done()

    def _forget(self, key: str, stream: _Stream) -> None:
        stream.connection.forget(stream.id)
        if self._streams.get(key) is stream:  # and not its successor
            del self._streams[key]
        if not stream.task.cancelled():
            stream.task.exception()  # now it counts as seen, should nobody wait for it any more

    def acknowledge(self, id: RequestId) -> None:
        """Take the server's acknowledgement of the stream `id`."""
        holds = self._acknowledged.get(id)
        if holds is not None and not holds.done():
            holds.set_result(None)

    def move(self) -> None:
        """Ask for all streams again: there is a new connection."""
        for stream in self._streams.values():
            stream.connection.request_failed(stream.id, StreamEnded("the connection was replaced"))

    def close(self, key: str) -> None:
        """End a stream, if it is open."""
        stream = self._streams.pop(key, None)
        if stream is not None:
            stream.task.cancel()

    def close_all(self) -> None:
        """End all streams."""
        for key in list(self._streams):
            self.close(key)

    async def wait_closed(self) -> None:
        """Wait until the streams that were closed have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)


async def _wait(holds: asyncio.Future[None], stream: asyncio.Task[None], timeout: float) -> None:
    """Wait until a stream is acknowledged; raise why it is not."""
    await asyncio.wait({stream, holds}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    if not holds.done():
        if stream.done():
            if not stream.cancelled():
                stream.result()
            raise RequestTimeout("the subscription was ended before it began")
        raise RequestTimeout(f"subscription not acknowledged within {timeout:g} s")
