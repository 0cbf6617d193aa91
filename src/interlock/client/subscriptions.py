"""Streams of `subscriptions/listen`, by which a modern server tells of changes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from interlock.connection import Connection
from interlock.envelope import encode
from interlock.errors import InterlockError, LocalProtocolError, RequestTimeout
from interlock.types import ListenParams, RequestId, SubscriptionFilter

MAX_SUBSCRIPTIONS = 1_000

_log = logging.getLogger("interlock.client")


class Subscriptions:
    """The open streams of one connection, by a key that the caller chooses."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._acknowledged: dict[RequestId, asyncio.Future[None]] = {}
        self._opening: dict[str, asyncio.Future[None]] = {}  # the same, by key

    async def open(self, key: str, wanted: SubscriptionFilter, *, timeout: float) -> None:
        """Open a stream and wait until the server has acknowledged it. Open ones stay.

        Raises:
            RequestTimeout: No acknowledgement within `timeout` seconds.
            InterlockError: The server refused, or the connection ended.
        """
        if key in self._streams:
            opening = self._opening.get(key)
            if opening is not None:  # by somebody else
                await _wait(opening, self._streams[key], timeout)
            return
        if len(self._streams) >= MAX_SUBSCRIPTIONS:
            raise LocalProtocolError(f"over {MAX_SUBSCRIPTIONS} subscriptions; end some first")
        params = encode(ListenParams(notifications=wanted))
        id, ended = self._connection.start(
            "subscriptions/listen", params, timeout=None, hard_timeout=None
        )
        holds: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._acknowledged[id] = self._opening[key] = holds
        self._streams[key] = stream = asyncio.create_task(self._hold(key, id, ended))
        # Not in `_hold`, which never runs when it is cancelled in the turn in which it is made.
        stream.add_done_callback(lambda stream: self._forget(key, id, stream))
        try:
            await _wait(holds, stream, timeout)
        except BaseException:
            stream.cancel()
            raise
        finally:
            self._acknowledged.pop(id, None)
            if self._opening.get(key) is holds:
                del self._opening[key]

    async def _hold(self, key: str, id: RequestId, ended: asyncio.Future[Any]) -> None:
        """Keep the stream until it is cancelled here or the server ends it."""
        try:
            await ended
            _log.info("subscription %r was ended by the server", key)
        except InterlockError as error:
            if id in self._acknowledged:
                raise  # to whoever opens it
            _log.info("subscription %r ended: %s", key, error)

    def _forget(self, key: str, id: RequestId, stream: asyncio.Task[None]) -> None:
        self._connection.forget(id)
        if self._streams.get(key) is stream:  # and not its successor
            del self._streams[key]
        if not stream.cancelled():
            stream.exception()  # now it counts as seen, should nobody wait for it any more

    def acknowledge(self, id: RequestId) -> None:
        """Take the server's acknowledgement of the stream `id`."""
        holds = self._acknowledged.get(id)
        if holds is not None and not holds.done():
            holds.set_result(None)

    def close(self, key: str) -> None:
        """End a stream, if it is open."""
        stream = self._streams.pop(key, None)
        if stream is not None:
            stream.cancel()

    def close_all(self) -> None:
        """End all streams."""
        for key in list(self._streams):
            self.close(key)


async def _wait(holds: asyncio.Future[None], stream: asyncio.Task[None], timeout: float) -> None:
    """Wait until a stream is acknowledged; raise why it is not."""
    await asyncio.wait({stream, holds}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    if not holds.done():
        if stream.cancelled():
            raise RequestTimeout("the subscription was ended before it began")
        if stream.done():
            stream.result()
        raise RequestTimeout(f"subscription not acknowledged within {timeout:g} s")
