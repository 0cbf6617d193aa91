"""A server's connection to one client, over stdio or in memory. Each message has its own era."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from typing import Any

from msgspec import Raw

from interlock import observing
from interlock.auth.principal import Principal
from interlock.connection import Connection
from interlock.context import ASK_TIMEOUT, Context, Session
from interlock.errors import CallRefused, InterlockError, RemoteProtocolError
from interlock.protocol import Notification, Protocol, Request, RequestOptions
from interlock.revisions import BATCHES
from interlock.server import request_context
from interlock.server.answering import Answering
from interlock.server.subscribers import end_of_stream, for_session
from interlock.server.wire_errors import wire_error
from interlock.transports import Transport
from interlock.types import RequestId

DRAIN = 30.0  # seconds that running requests may take when the server shuts down

_log = logging.getLogger("interlock.server")


class ServerConnection:
    """The server's side of a connection to one client. It is the `BackChannel` of its requests.

    `initialize` opens a legacy session on the connection. A message with modern metadata does not
    use that session.

    Args:
        server: Answers the client's requests.
        transport: The transport to the client, not yet open.
        principal: The principal who makes the requests; None for the local user.
        early: Methods that are answered even before the server has started; other requests wait.
    """

    def __init__(
        self,
        server: Answering,
        transport: Transport,
        principal: Principal | None = None,
        *,
        early: frozenset[str] = frozenset(),
    ) -> None:
        self._server = server
        self._principal = principal
        self.caller: Hashable = object()
        self._protocol = Protocol(answers_garbage=True, dropped=server.dropped)
        self._connection = Connection(
            self._protocol,
            transport,
            on_request=self._serve,
            on_notification=self._notified,
            on_loss=self._disconnected,
        )
        self._session = Session()
        self._subscriber = for_session(self._session, self.notify, principal)
        self._early = early
        self._ended = asyncio.get_running_loop().create_future()
        self._started = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None
        self._streams: dict[RequestId, asyncio.Task[Any] | None] = {}  # tasks of subscriptions

    async def serve(self) -> None:
        """Answer the client's requests until it disconnects."""
        try:
            if self._early:
                await self._connection.open()
            async with self._server.running():
                if not self._early:
                    await self._connection.open()
                self._started.set()
                try:
                    await self._ended
                finally:
                    self._server.subscribers.remove(self._subscriber)
                    await self._connection.close()
        except BaseException:
            self._ended.cancel()
            self._server.subscribers.remove(self._subscriber)
            await self._connection.close()  # or the client would wait for answers that never come
            raise

    def drain(self) -> bool:
        """Stop reading; close once running requests are answered, or after `DRAIN` seconds.

        Returns:
            False if the server has not started yet, or was already told to drain.
        """
        if not self._started.is_set() or self._ended.done() or self._draining is not None:
            return False
        self._draining = asyncio.create_task(self._drain())
        return True

    async def _drain(self) -> None:
        for id, handler in list(self._streams.items()):
            cancelled, result = end_of_stream(id)
            self.notify("notifications/cancelled", cancelled)
            self._protocol.reply(id, result)
            if handler is not None:
                handler.cancel()
        await self._connection.settle(DRAIN)
        if not self._ended.done():
            self._ended.set_result(None)

    def _disconnected(self, error: InterlockError) -> None:
        if isinstance(error, RemoteProtocolError):  # all other errors are ordinary disconnects
            _log.error("the connection was closed: %s", error)
        if not self._ended.done():
            self._ended.set_result(None)

    # Requests

    async def _serve(self, request: Request) -> None:
        protocol = self._protocol
        context: Context | None = None
        try:
            if self._draining is not None:
                text = "the server is shutting down; connect again later"
                raise CallRefused(text, "draining", DRAIN)
            if not self._started.is_set() and request.method not in self._early:
                await self._started.wait()
            context = request_context.context_of(request, self, self._session, self._principal)
            context.is_local = True
            if request.method == "subscriptions/listen":
                self._streams[request.id] = asyncio.current_task()
            if observing.observer is not None:
                answer = observing.observer.serve(self._server, request, context)
            else:
                answer = self._server.answer(request, context)
            protocol.reply(request.id, await answer)
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

    def _notified(self, notification: Notification) -> None:
        if notification.method == "notifications/initialized" and self._session.revision:
            self._protocol.batches = self._session.revision in BATCHES
            self._server.subscribers.add(self._subscriber)

    # BackChannel

    def notify(self, method: str, params: bytes) -> None:
        self._connection.notify(method, params)

    async def ask(self, method: str, params: bytes, *, timeout: float = ASK_TIMEOUT) -> Raw:
        options = RequestOptions(timeout=timeout, hard_timeout=timeout)
        return await self._connection.request(method, params, options)

    def close_stream(self, retry_ms: int) -> None:
        """Do nothing: this connection has no streams."""
