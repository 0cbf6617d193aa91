"""One client on a connection of its own: stdio, or memory. Both eras, told by each message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from typing import Any

from msgspec import Raw

from interlock.connection import Connection
from interlock.context import ASK_TIMEOUT, Context, Session
from interlock.errors import InterlockError, RemoteProtocolError
from interlock.protocol import Notification, Protocol, Request, RequestOptions
from interlock.revisions import BATCHES
from interlock.server import request_context
from interlock.server.answering import Answering
from interlock.server.subscribers import end_of_stream, for_session
from interlock.server.wire_errors import wire_error
from interlock.transports import Transport
from interlock.types import RequestId

DRAIN = 30.0  # seconds that open requests get when the server is told to end

_log = logging.getLogger("interlock.server")


class ServerConnection:
    """A server's side of one connection. Also the `BackChannel` of its requests.

    `initialize` opens a legacy session for the connection; a message with modern metadata is
    served on its own, also in between.
    """

    def __init__(self, server: Answering, transport: Transport) -> None:
        self._server = server
        self.caller: Hashable = object()
        self._protocol = Protocol(answers_garbage=True, dropped=server.dropped)
        self._connection = Connection(
            self._protocol,
            transport,
            on_request=self._serve,
            on_notification=self._notice,
            on_loss=self._lose,
        )
        self._session = Session()
        self._listener = for_session(self._session.subscriptions, self.notify, None)
        self._ended = asyncio.get_running_loop().create_future()
        self._is_open = False
        self._leaving: asyncio.Task[None] | None = None
        self._streams: dict[RequestId, asyncio.Task[Any] | None] = {}  # of those who listen

    async def serve(self) -> None:
        """Answer until the client has gone."""
        try:
            async with self._server.running():
                await self._connection.open()
                self._is_open = True
                try:
                    await self._ended
                finally:
                    self._server.subscribers.remove(self._listener)
                    await self._connection.close()
        except BaseException:
            await self._connection.close()  # the client would wait for a server that cannot start
            raise

    def leave(self) -> bool:
        """End when what runs has been answered, or after `DRAIN` seconds.

        Returns:
            Whether that will be; False if it is not open yet, or ends already.
        """
        if not self._is_open or self._ended.done() or self._leaving is not None:
            return False
        self._leaving = asyncio.create_task(self._leave())
        return True

    async def _leave(self) -> None:
        for id, handler in list(self._streams.items()):
            cancelled, result = end_of_stream(id)
            self.notify("notifications/cancelled", cancelled)
            self._protocol.reply(id, result)
            if handler is not None:
                handler.cancel()
        await self._connection.settle(DRAIN)
        if not self._ended.done():
            self._ended.set_result(None)

    def _lose(self, error: InterlockError) -> None:
        if isinstance(error, RemoteProtocolError):  # else it has gone, as clients do
            _log.warning("the connection was ended: %s", error)
        if not self._ended.done():
            self._ended.set_result(None)

    # Requests

    async def _serve(self, request: Request) -> None:
        protocol = self._protocol
        context: Context | None = None
        try:
            if self._leaving is not None:
                raise InterlockError("the server is about to end: it takes no more requests")
            context = request_context.context_of(request, self, self._session)
            if request.method == "subscriptions/listen":
                self._streams[request.id] = asyncio.current_task()
            protocol.reply(request.id, await self._server.answer(request, context))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            protocol.reply_error(request.id, *wire_error(request.method, error))
        finally:
            if self._streams:
                self._streams.pop(request.id, None)
            if context is not None:
                context.finished = True
        self._connection.flush()

    def _notice(self, notification: Notification) -> None:
        if notification.method == "notifications/initialized" and self._session.revision:
            self._protocol.batches = self._session.revision in BATCHES
            self._server.subscribers.add(self._listener)

    # BackChannel

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification."""
        self._connection.notify(method, params)

    async def ask(self, method: str, params: bytes, *, timeout: float = ASK_TIMEOUT) -> Raw:
        """Ask a legacy client."""
        options = RequestOptions(timeout=timeout, hard_timeout=timeout)
        return await self._connection.request(method, params, options)

    def close_stream(self, retry_ms: int) -> None:
        """Do nothing: this connection is all there is."""
