"""Streamable HTTP: each message is sent by a POST, whose answer contains the response.

A request whose `_meta` states a modern revision has that revision's headers, and no session. Any
other message belongs to a legacy session.

Legacy only: the response to `initialize` has the session id; a standing GET stream delivers
messages outside of any request; a stream that was cut is resumed by `Last-Event-ID`.

Spec 2026-07-28 and 2025-11-25: basic/transports.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import aclosing, suppress
from contextvars import Context
from functools import lru_cache

import aiohttp
import msgspec
from msgspec import Raw, Struct, field

from interlock import aio, revisions
from interlock.errors import (
    AuthError,
    ConnectionClosed,
    HttpError,
    InterlockError,
    MessageTooLarge,
    OutOfMemory,
    ParseError,
    RemoteError,
    RemoteProtocolError,
    SessionExpired,
    StreamEnded,
    Unreachable,
)
from interlock.observing import trace_headers
from interlock.protocol.envelope import RequestFrame, messages_in, notification_method
from interlock.protocol.event_stream import SseParser, carries_message
from interlock.protocol.headers import ToolHeaders, encode_value
from interlock.protocol.odd_lines import split
from interlock.text.quoting import clip
from interlock.text.redaction import NO_VALUES
from interlock.transports import Receiver
from interlock.transports.http_bodies import JSON, frames_in, may_be_json, media_type
from interlock.transports.http_endpoint import (
    EVENTS,
    FAILURES,
    REPLY_TIMEOUT,
    HttpEndpoint,
    PendingReplies,
)
from interlock.transports.http_errors import retry_after, sent_token
from interlock.types import RequestId

LISTEN_TIMEOUT = 2.0  # seconds that requests wait until the standing stream is open
LAST_EVENTS_TIMEOUT = 1.0  # seconds that a stream may stay open after its response
DELETE_TIMEOUT = 2.0

# A stream that ended is reopened after the server's `retry`, or after RETRY seconds. The number of
# attempts without an event is limited; an attempt that lasted longer than WELL resets it.
RETRY = 1.0
SHORTEST_RETRY = 0.1
LONGEST_RETRY = 30.0
WELL = 60.0
MAX_RESUMPTIONS = 5
MAX_LISTENS = 120  # an hour
_NO_STREAM = (204, 400, 403, 404, 405, 406, 501)  # statuses from servers without a standing stream

_SESSION = re.compile(r"[\x21-\x7e]*")
_BOTH = "application/json, text/event-stream"
_log = logging.getLogger("interlock.client")


class _Meta(Struct):
    version: str = field(name="io.modelcontextprotocol/protocolVersion", default="")


class _CallParams(Struct, frozen=True):
    arguments: Raw = Raw(b"{}")


class _Call(Struct):
    params: _CallParams = _CallParams()


class _Initialized(Struct):
    protocol_version: str = field(name="protocolVersion", default="")


class _InitializeAnswer(Struct):
    result: _Initialized


_decode_meta = msgspec.json.Decoder(_Meta).decode
_decode_call = msgspec.json.Decoder(_Call).decode
_decode_initialized = msgspec.json.Decoder(_InitializeAnswer).decode


@lru_cache(64)
def _version_in(meta: bytes) -> str:
    """Return the revision that `_meta` states; "" in a legacy session, which states none."""
    return _decode_meta(b"{%b}" % meta).version


def _initialized_in(frame: bytes) -> _Initialized:
    """Return the result in a response to `initialize`; an empty one if there is none."""
    try:
        return _decode_initialized(frame).result
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        with suppress(ParseError):
            for message in [*messages_in(frame), *split(frame)[1]]:
                with suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                    return _decode_initialized(message).result
    return _Initialized()


def _pause(parser: SseParser, otherwise: float) -> float:
    """Return the seconds before a stream is reopened: the server's `retry`, or the default."""
    return otherwise if parser.retry is None else max(parser.retry, SHORTEST_RETRY)


class HttpTransport:
    """A connection to a server over Streamable HTTP, in a modern or legacy revision.

    Args:
        endpoint: The server's endpoint.
        tool_headers: The tool arguments that HTTP headers repeat.
    """

    def __init__(self, endpoint: HttpEndpoint, tool_headers: ToolHeaders) -> None:
        self._endpoint = endpoint
        self._tool_headers = tool_headers
        self._receiver: Receiver
        self._loop: asyncio.AbstractEventLoop
        self._posts: dict[object, asyncio.Task[None]] = {}  # requests by their id
        self._pending_replies = PendingReplies()
        self._lost = False
        # State of a legacy session
        self._session = ""
        self._revision = ""
        self._gate: asyncio.Event | None = None  # set when the session is established

    async def open(self, receiver: Receiver) -> None:
        """Store the receiver; the first message opens a connection."""
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()

    # Sending

    def send(self, frames: list[bytes]) -> None:
        if self._lost:
            return
        for frame in frames:
            request = frame if isinstance(frame, RequestFrame) else None
            method = request.method if request is not None else notification_method(frame)
            if method and request is None and not self._revision:
                continue  # modern servers get no notifications; closing a request cancels it
            if not method and self._pending_replies.is_full:
                self._loop.call_soon(
                    self.abort, self._pending_replies.overflow(self._endpoint.shown)
                )
                return
            key = request.id if request is not None else object()
            # The standing stream of a session outlives the request that began the session.
            own = Context() if method == "notifications/initialized" else None
            task = aio.start(self._post(key, method, frame), loop=self._loop, context=own)
            if not task.done():
                self._posts[key] = task
                if request is None and method != "notifications/initialized":
                    self._pending_replies.add(task, is_answer=not method)

    def forget(self, id: RequestId) -> None:
        """Close the HTTP request, which cancels it at a modern server."""
        task = self._posts.get(id)
        if task is not None:
            task.add_done_callback(lambda _: self._posts.pop(id, None))  # also if it never started
            task.cancel()

    async def _post(self, key: object, method: str, frame: bytes) -> None:
        error: InterlockError | None
        try:
            if method == "notifications/initialized":
                await self._begin_session(frame)
                return
            if self._gate is not None:
                await self._gate.wait()
            error = await self._exchange(frame)
        except InterlockError as reason:
            error = reason
        except FAILURES as reason:
            error = self._endpoint.failure(reason)
        except Exception as reason:
            _log.exception("%s: sending %s failed", self._endpoint.shown, method or "a response")
            error = ConnectionClosed(f"{self._endpoint.shown}: {type(reason).__name__}")
        finally:
            self._posts.pop(key, None)
        if error is not None and isinstance(frame, RequestFrame):
            self._receiver.request_failed(frame.id, error)

    async def _exchange(self, frame: bytes) -> InterlockError | None:
        """Send a message and receive its answer; return an error if a request got no response."""
        endpoint = self._endpoint
        headers = self._headers(frame)
        error: InterlockError | None
        # Listening requests and our responses must not wait for a free connection: listening
        # requests stay open, and requests that use all connections may wait for our responses.
        request = frame if isinstance(frame, RequestFrame) else None
        is_call = request is not None and request.method != "subscriptions/listen"
        own = NO_VALUES if request is None else request.headers
        response = await endpoint.send("POST", headers, frame, own=own, at_once=not is_call)
        try:
            if response.status == 404 and "Mcp-Session-Id" in headers:
                return SessionExpired(f"{endpoint.shown} does not know the session any more")
            if not 200 <= response.status < 300:
                return await endpoint.refusal(response, own)
            if request is None:
                return None
            kind = media_type(response)
            if kind == EVENTS:
                parser = SseParser(endpoint.max_bytes)
                error = await self._read_stream(request, response, parser)
            else:
                frames: list[bytes] = []
                if kind == JSON or may_be_json(kind):
                    body = await endpoint.body(response)
                    is_usual = kind == JSON and body.startswith(b"{") and body.isascii()
                    frames = [body] if is_usual else frames_in(body, response, endpoint.max_bytes)
                if request.method == "initialize":
                    for each in frames:
                        self._adopt_session(response, each)
                if frames:
                    self._receiver.frames_received(frames, request.id)
                error = self._unless_answered(request.id, response, bool(frames))
        finally:
            response.release()  # closes the connection if the answer was not read to its end
        if error is None or isinstance(error, OutOfMemory):  # a retry cannot help
            return error
        if kind == EVENTS and self._revision and parser.last_id:
            return await self._resume(request, parser)
        return error

    def _unless_answered(
        self, id: RequestId, response: aiohttp.ClientResponse, has_json: bool
    ) -> HttpError | None:
        if not self._receiver.awaits(id):
            return None
        why = "its JSON does not answer the request"
        if not has_json:
            kind = media_type(response)
            is_empty = kind == JSON or (not kind and response.content_length == 0)
            sent = "nothing" if is_empty else f"{clip(kind) or 'no Content-Type'}, not JSON-RPC"
            why = f"it sent {sent}"
        shown, status = self._endpoint.shown, response.status
        return HttpError(f"{shown} answered {status}, but {why}", status)

    def _headers(self, frame: bytes) -> dict[str, str]:
        headers = {"Content-Type": JSON, "Accept": _BOTH}
        if not isinstance(frame, RequestFrame):
            return {**headers, **self._session_headers()}
        if frame.trace is not None:
            headers.update(trace_headers(frame.trace))
        version = _version_in(frame.meta)
        if not version:
            return (
                headers if frame.method == "initialize" else {**headers, **self._session_headers()}
            )
        headers["MCP-Protocol-Version"] = version
        headers["Mcp-Method"] = frame.method
        if frame.name is not None:
            headers["Mcp-Name"] = encode_value(frame.name)
            if frame.method == "tools/call" and frame.name in self._tool_headers:
                arguments = _decode_call(frame).params.arguments
                headers.update(self._tool_headers.of(frame.name, arguments))
        return headers

    def _session_headers(self) -> dict[str, str]:
        headers = {"MCP-Protocol-Version": self._revision}
        if self._session:
            headers["Mcp-Session-Id"] = self._session
        return headers

    def _stream_headers(self, parser: SseParser) -> dict[str, str]:
        headers = {**self._session_headers(), "Accept": EVENTS}
        if parser.last_id:
            headers["Last-Event-ID"] = parser.last_id
        return headers

    def _adopt_session(self, response: aiohttp.ClientResponse, frame: bytes) -> None:
        """Read the session id and revision from a successful response to `initialize`."""
        told = _initialized_in(frame)
        if told.protocol_version not in revisions.LEGACY:  # might be invalid in a header
            return  # the handshake will refuse this revision
        session = response.headers.get("Mcp-Session-Id", "")
        if not _SESSION.fullmatch(session):
            raise RemoteProtocolError(f"{self._endpoint.shown} sent an invalid Mcp-Session-Id")
        self._revision, self._session = told.protocol_version, session

    # Streams

    async def _read_stream(
        self, frame: RequestFrame, response: aiohttp.ClientResponse, parser: SseParser
    ) -> InterlockError | None:
        """Receive the events in an answer; return an error if the response was missing."""
        ignored = b""
        try:
            # After the response, read to the stream's end, so that the connection can be reused.
            async with (
                asyncio.timeout(None) as rest,
                aclosing(self._endpoint.events(response, parser)) as events,
            ):
                async for event in events:
                    is_usual = event.name == "message" and b'"jsonrpc"' in event.data
                    if not is_usual and not carries_message(event):
                        ignored = event.data
                        continue
                    if frame.method == "initialize":
                        self._adopt_session(response, event.data)
                    self._receiver.frames_received([event.data], frame.id)
                    if rest.when() is None and not self._receiver.awaits(frame.id):
                        rest.reschedule(self._loop.time() + LAST_EVENTS_TIMEOUT)
        except FAILURES as reason:  # including a timeout: the request was answered
            error = self._endpoint.failure(reason)
        else:
            text = f"{self._endpoint.shown} ended its answer before the result"
            if ignored:
                told = clip(ignored.decode(errors="replace"))
                text += f'; instead, it sent "{told}"'
            error = StreamEnded(text)
        return error if self._receiver.awaits(frame.id) else None

    async def _resume(self, request: RequestFrame, parser: SseParser) -> StreamEnded | None:
        """Reopen a stream until the response arrives.

        The server has accepted the request, so errors from reopening must not mean "not sent".
        """
        why: InterlockError = StreamEnded(f"{self._endpoint.shown} ended the stream too often")
        backoff = aio.Backoff(RETRY, LONGEST_RETRY)
        while backoff.attempts < MAX_RESUMPTIONS and parser.last_id:
            await asyncio.sleep(_pause(parser, backoff.next_pause(self._loop.time())))
            seen = parser.last_id
            try:
                await self._read_on(request, parser)
            except ConnectionClosed as error:
                why = error
            except (AuthError, HttpError, RemoteError) as error:
                why = error
                break
            if not self._receiver.awaits(request.id):
                return None
            if parser.last_id != seen:
                backoff.reset()
        return StreamEnded(f"the rest of an answer was lost: {why}")

    async def _read_on(self, request: RequestFrame, parser: SseParser) -> None:
        """Read the events after `last_id`, until the response arrives or the stream ends."""
        id, own = request.id, request.headers
        headers = self._stream_headers(parser)
        async with self._endpoint.request("GET", headers, own=own) as response:
            if response.status != 200 or media_type(response) != EVENTS:
                raise await self._endpoint.refusal(response, own)
            async with aclosing(self._endpoint.events(response, parser.resumed())) as events:
                async for event in events:
                    if carries_message(event):
                        self._receiver.frames_received([event.data], id)
                        if not self._receiver.awaits(id):
                            return

    async def _begin_session(self, frame: bytes) -> None:
        """Send `initialized`, and open the standing stream before other requests."""
        self._gate = gate = asyncio.Event()
        try:
            with suppress(TimeoutError):  # go on: a server may work without this stream
                async with asyncio.timeout(REPLY_TIMEOUT):
                    await self._exchange(frame)
            timer = self._loop.call_later(LISTEN_TIMEOUT, gate.set)
            try:
                await self._listen(gate)
            finally:
                timer.cancel()
        except (InterlockError, *FAILURES) as error:
            _log.info("%s: no standing stream: %s", self._endpoint.shown, error)
        finally:
            gate.set()

    async def _listen(self, gate: asyncio.Event) -> None:
        parser = SseParser(self._endpoint.max_bytes)
        backoff = aio.Backoff(RETRY, LONGEST_RETRY, WELL)
        while backoff.attempts < MAX_LISTENS:
            seen, busy = 0, 0.0
            refused: str | None = None
            try:
                async with self._endpoint.request("GET", self._stream_headers(parser)) as response:
                    gate.set()
                    is_stream = media_type(response) == EVENTS
                    if response.status in _NO_STREAM or (response.status == 200 and not is_stream):
                        return
                    if response.status == 401:
                        refused = sent_token(response)
                    if response.status != 200:
                        busy = retry_after(response.headers.get("Retry-After", "")) or 0.0
                    else:
                        async for event in self._endpoint.events(response, parser.resumed()):
                            seen += 1
                            if carries_message(event):
                                self._receiver.frames_received([event.data])
            except (StreamEnded, Unreachable) as error:
                _log.debug("%s: the standing stream was cut: %s", self._endpoint.shown, error)
            except MessageTooLarge as error:
                _log.warning(
                    "%s: a message on the standing stream was dropped: %s",
                    self._endpoint.shown,
                    error,
                )
                parser = SseParser(self._endpoint.max_bytes)  # do not resume at this event
            if refused is not None and not await self._obtains_another_token(refused):
                return
            if seen:
                backoff.reset()
            pause = backoff.next_pause(self._loop.time())
            wait = _pause(parser, pause)
            await asyncio.sleep(max(wait if seen else max(wait, pause), busy))

    async def _obtains_another_token(self, refused: str) -> bool:
        """Wait for another token than `refused`; return whether the token has changed.

        This never starts a login; only a request may start a login.
        """
        for _ in range(MAX_LISTENS):
            token = await self._endpoint.next_token()
            if token != refused:
                return token is not None
            await asyncio.sleep(LONGEST_RETRY)
        return False

    # Ending

    def diagnostics(self) -> str:
        return ""

    def abort(self, error: InterlockError) -> None:
        if not self._lost:
            self._stop()
            self._receiver.connection_lost(error)

    async def close(self) -> None:
        """Close all HTTP requests and streams, and end a legacy session."""
        first = not self._lost
        self._stop()
        if self._posts:
            await asyncio.wait(list(self._posts.values()))
        if first and self._session:
            with suppress(InterlockError, TimeoutError):
                async with asyncio.timeout(DELETE_TIMEOUT):
                    async with self._endpoint.request("DELETE", self._session_headers()):
                        pass

    def _stop(self) -> None:
        self._lost = True
        for task in self._posts.values():
            task.cancel()
