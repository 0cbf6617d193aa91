"""HTTP+SSE of revision 2024-11-05: the server sends messages on one stream, the client by POST.

The stream is the session: when it ends, the connection ends.

Spec 2024-11-05: basic/transports, "HTTP with SSE".
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from urllib.parse import urljoin

from interlock import aio
from interlock.errors import (
    ConnectionClosed,
    HttpError,
    InterlockError,
    RemoteProtocolError,
    StreamEnded,
)
from interlock.observing import trace_headers
from interlock.protocol.envelope import RequestFrame, notification_method
from interlock.protocol.event_stream import SseParser, carries_message
from interlock.text import urls
from interlock.text.redaction import NO_VALUES
from interlock.transports import Receiver
from interlock.transports.http_bodies import JSON, media_type
from interlock.transports.http_endpoint import EVENTS, HttpEndpoint, PendingReplies
from interlock.types import RequestId

# The most POSTs that a server may leave open although it has responded to them on its stream.
MAX_LEFT_OPEN = 50

_HEADERS = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}
_log = logging.getLogger("interlock.client")


class SseTransport:
    """A connection to a server that speaks HTTP+SSE."""

    def __init__(self, endpoint: HttpEndpoint) -> None:
        self._endpoint = endpoint
        self._messages: HttpEndpoint  # the endpoint for messages, named by the server
        self._receiver: Receiver
        self._stream: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._posts: dict[RequestId, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending_replies = PendingReplies()
        self._initialized: asyncio.Task[None] | None = None
        self._lost = False

    async def open(self, receiver: Receiver) -> None:
        """Open the stream, and read from it the URL to which messages are posted.

        Raises:
            InterlockError: The server has no event stream, or names a URL on another origin.
        """
        self._receiver = receiver
        self._stream = aio.start_detached(self._read())
        try:
            await self._ready
        except BaseException:
            await self.close()
            raise

    async def _read(self) -> None:
        error: InterlockError
        try:
            async with self._endpoint.request("GET", {"Accept": EVENTS}) as response:
                if response.status != 200:
                    raise await self._endpoint.refusal(response)
                if media_type(response) != EVENTS:
                    raise HttpError(
                        f"{self._endpoint.shown} did not answer with an event stream", 200
                    )
                parser = SseParser(self._endpoint.max_bytes)
                async with aclosing(self._endpoint.events(response, parser)) as events:
                    async for event in events:
                        if event.name == "endpoint" and not self._ready.done():
                            self._messages = self._messages_at(event.data, str(response.url))
                            self._ready.set_result(None)
                        elif self._ready.done() and carries_message(event):
                            self._receiver.frames_received([event.data])
            error = StreamEnded(f"{self._endpoint.shown} ended the stream, which ends the session")
        except InterlockError as reason:
            error = reason
        except Exception as reason:
            _log.exception("%s: reading its stream failed", self._endpoint.shown)
            error = ConnectionClosed(f"{self._endpoint.shown}: {type(reason).__name__}")
        if not self._ready.done():
            self._ready.set_exception(error)
        else:
            self.abort(error)

    def _messages_at(self, data: bytes, stream: str) -> HttpEndpoint:
        shown = self._endpoint.shown
        try:
            target = urljoin(stream, data.decode(errors="replace").strip())
            home, elsewhere = urls.origin(self._endpoint.url), urls.origin(target)
            messages = self._endpoint.sibling(target)
        except ValueError:  # including ConfigError
            raise RemoteProtocolError(f"{shown} sent an invalid URL for messages") from None
        if elsewhere != home:
            raise RemoteProtocolError(
                f"{shown} wants messages at {elsewhere}, which is not its origin"
            )
        return messages

    # Sending

    def send(self, frames: list[bytes]) -> None:
        """Post each frame; responses arrive on the stream, or from some servers in the body."""
        if self._lost:
            return
        for frame in frames:
            if isinstance(frame, RequestFrame):
                if len(self._posts) >= MAX_LEFT_OPEN:
                    self._end_answered()
                self._posts[frame.id] = self._start_post(frame)
                continue
            method = notification_method(frame)
            if not method and self._pending_replies.is_full:
                error = self._pending_replies.overflow(self._endpoint.shown)
                asyncio.get_running_loop().call_soon(self.abort, error)
                return
            task = self._start_post(frame)
            if method == "notifications/initialized":
                self._initialized = task  # no other message may be sent before it
            self._pending_replies.add(task, is_answer=not method)

    def _start_post(self, frame: bytes) -> asyncio.Task[None]:
        task = asyncio.create_task(self._post(frame, self._initialized))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end_answered(self) -> None:
        # Close POSTs that have been answered but left open; they would use up all connections.
        for id in [id for id in self._posts if not self._receiver.awaits(id)]:
            self.forget(id)

    def forget(self, id: RequestId) -> None:
        """Stop sending the request, if it is still being sent."""
        task = self._posts.pop(id, None)
        if task is not None:
            task.cancel()

    async def _post(self, frame: bytes, before: asyncio.Task[None] | None) -> None:
        error: InterlockError | None = None
        try:
            if before is not None and not before.done():
                await asyncio.wait({before})
            own, headers = NO_VALUES, _HEADERS
            if isinstance(frame, RequestFrame):
                own = frame.headers
                if frame.trace is not None:
                    headers = {**_HEADERS, **trace_headers(frame.trace)}
            async with self._messages.request("POST", headers, frame, own) as response:
                if not 200 <= response.status < 300:
                    error = await self._messages.refusal(response, own)
                elif isinstance(frame, RequestFrame) and media_type(response) == JSON:
                    # https://github.com/modelcontextprotocol/csharp-sdk/pull/445
                    body = await self._messages.body(response)
                    self._receiver.frames_received([body] if body else [])
        except InterlockError as reason:
            error = reason
        except Exception as reason:
            _log.exception("%s: sending a message failed", self._endpoint.shown)
            error = ConnectionClosed(f"{self._endpoint.shown}: {type(reason).__name__}")
        if isinstance(frame, RequestFrame):
            self._posts.pop(frame.id, None)
            if error is not None:
                self._receiver.request_failed(frame.id, error)

    # Ending

    def diagnostics(self) -> str:
        return ""

    def abort(self, error: InterlockError) -> None:
        if not self._lost:
            self._stop()
            self._receiver.connection_lost(error)

    async def close(self) -> None:
        """Close the stream, which ends the session."""
        self._stop()
        me = asyncio.current_task()  # the stream's own task, if the stream ended during `open`
        tasks = {*self._tasks, *([self._stream] if self._stream else ())} - {me}
        if tasks:
            await asyncio.wait(tasks)
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # marks the error as retrieved, so asyncio does not log it

    def _stop(self) -> None:
        self._lost = True
        if not self._ready.done():  # `open` may be waiting
            self._ready.set_exception(ConnectionClosed("the connection was closed"))
        for task in (*self._tasks, *([self._stream] if self._stream else ())):
            if task is not asyncio.current_task():  # the task that closes must not cancel itself
                task.cancel()
