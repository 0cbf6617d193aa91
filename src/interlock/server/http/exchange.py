"""A request on an HTTP connection and its response, as an ASGI application sees them."""

from __future__ import annotations

import asyncio
import logging
import re
from http import HTTPStatus
from typing import Any, Protocol

from interlock.server.http.responses import Header, Message, Receive, Scope, Send

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_JSON_HEAD = b"HTTP/1.1 200 OK\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_STATUS_LINES = {each: b"HTTP/1.1 %d %b\r\n" % (each, each.phrase.encode()) for each in HTTPStatus}
_NO_BODY = frozenset({204, 304})  # statuses without body and `Content-Length`
_BAD_NAME = re.compile(b'[\x00-\x20\x7f()<>@,;:\\[\\]={}\\\\"]')
_BAD_VALUE = re.compile(b"[\x00-\x08\x0a-\x1f\x7f]")
_FAILED: list[Message] = [
    {
        "type": "http.response.start",
        "status": 500,
        "headers": [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"21"),
            (b"connection", b"close"),
        ],
    },
    {"type": "http.response.body", "body": b"Internal Server Error"},
]
_log = logging.getLogger(__name__)


class CountedTransport:
    """A transport that counts the bytes written, and makes writers wait if the client is slow.

    Attributes:
        written: The number of bytes written so far.
        writable: Cleared while too many bytes are waiting for the client to read them.
    """

    def __init__(self, transport: Any, server_state: Any) -> None:
        self._transport = transport
        self._write = transport.write
        self._server_state = server_state
        self._defaults: tuple[list[Header], bytes] = ([], b"")
        self.written = 0
        self.is_closing = transport.is_closing
        self.is_full = False
        self._writable: asyncio.Event | None = None

    def write(self, data: bytes) -> None:
        self.written += len(data)
        self._write(data)

    @property
    def default_lines(self) -> bytes:
        """The encoded headers that every response gets."""
        headers = self._server_state.default_headers
        if self._defaults[0] is not headers:  # replaced each second, for `Date`
            self._defaults = headers, b"".join(b"%b: %b\r\n" % header for header in headers)
        return self._defaults[1]

    def pause_writing(self) -> None:
        self.is_full = True
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        self.is_full = False
        if self._writable is not None:
            self._writable.set()

    async def drain(self) -> None:
        if self._writable is not None:
            await self._writable.wait()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Connection(Protocol):
    """The part of a connection that its exchanges use."""

    transport: CountedTransport

    def resume_reading(self) -> None: ...

    def on_response_complete(self) -> None: ...


class ServedExchange:
    """A request and its response, on one connection.

    Attributes:
        is_complete: Whether the whole response has been sent.
        keeps_alive: Whether the connection stays open for another request.
    """

    __slots__ = (
        "_arrived", "_body", "_connection", "_expects", "_has_more", "_has_started", "_head",
        "_is_chunked", "_is_gone", "_is_unframed", "_left", "is_complete", "keeps_alive", "scope",
    )  # fmt: skip

    def __init__(
        self, connection: _Connection, scope: Scope, *, keeps_alive: bool, expects: bool = False
    ) -> None:
        self._connection = connection
        self.scope = scope
        self.keeps_alive = keeps_alive
        self._expects = expects  # the client sends the body only after `100 Continue`
        self._arrived = asyncio.Event()
        self._body = bytearray()
        self._has_more = True
        self._has_started = self.is_complete = self._is_gone = False
        self._is_chunked = self._is_unframed = False
        self._left = 0  # bytes of the response body that are missing from its Content-Length
        self._head = b""  # the response's head, until it is sent

    # Request

    def add(self, body: bytes) -> int:
        """Add to the body; return how many bytes the application has not received yet."""
        self._body += body
        self._arrived.set()
        return len(self._body)

    def end(self) -> None:
        self._has_more = False
        self._arrived.set()

    def disconnect(self) -> None:
        self._is_gone = not self.is_complete
        self._arrived.set()

    async def receive(self) -> Message:
        """Return the next part of the body as an ASGI message, or a disconnect message."""
        if not self._is_gone and not self.is_complete:
            if self._expects and not self._has_started:
                self._expects = False
                self._connection.transport.write(_CONTINUE)
            self._connection.resume_reading()
            await self._arrived.wait()
            self._arrived.clear()
        if self._is_gone or self.is_complete:
            return {"type": "http.disconnect"}
        body, self._body = bytes(self._body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self._has_more}

    # Response

    async def run(self, app: Any) -> None:
        """Run an application on this request; it sends the response."""
        receive: Receive = self.receive
        send: Send = self.send
        try:
            await app(self.scope, receive, send)
        except BaseException as error:
            _log.error("an exception in the ASGI application", exc_info=error)
            await self._fail()
        else:
            if not self.is_complete and not self._is_gone:
                if not self._has_started:  # otherwise a stream was cut on purpose
                    _log.error("the ASGI application has sent no response")
                await self._fail()

    async def _fail(self) -> None:
        if self._has_started:
            self._flush()
            self._connection.transport.close()
        else:
            for message in _FAILED:
                await self.send(message)

    async def send(self, message: Message) -> None:
        transport = self._connection.transport
        if transport.is_full and not self._is_gone:
            await transport.drain()
        if self._is_gone:
            return
        expected = "http.response.body" if self._has_started else "http.response.start"
        if self.is_complete or message["type"] != expected:
            raise RuntimeError(f"unexpected ASGI message {message['type']!r}")
        if self._has_started:
            self._send_body(message.get("body", b""), ends=not message.get("more_body", False))
        else:
            self._has_started = True
            self._head = self._head_of(message["status"], message.get("headers", ()))
            # Sent together with the first part of the body, or else at the end of this loop turn.
            asyncio.get_running_loop().call_soon(self._flush)

    def _head_of(self, status: int, headers: Any) -> bytes:
        lines = [_STATUS_LINES[HTTPStatus(status)], self._connection.transport.default_lines]
        has_length = closes = False
        for name, value in headers:
            if _BAD_NAME.search(name) or _BAD_VALUE.search(value):
                raise RuntimeError("a header has characters that are not allowed")
            if name == b"content-length":
                has_length, self._left = True, int(value)
            elif name == b"connection" and value == b"close":
                closes, self.keeps_alive = True, False
            lines.append(b"%b: %b\r\n" % (name, value))
        if not self.keeps_alive and not closes:
            lines.append(b"connection: close\r\n")
        if not has_length and status not in _NO_BODY and self.scope["method"] != "HEAD":
            if self.scope["http_version"] == "1.0":  # its clients read until the connection ends
                self._is_unframed = True
            else:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)

    def _send_body(self, body: bytes, *, ends: bool) -> None:
        if self.scope["method"] == "HEAD":
            body, self._left = b"", 0
        elif self._is_chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body += b"0\r\n\r\n" if ends else b""
        elif not self._is_unframed:
            self._left -= len(body)
            if self._left < 0 or (ends and self._left):
                raise RuntimeError("the response does not have the length that it announced")
        head, self._head = self._head, b""
        if head or body:
            self._connection.transport.write(head + body)
        if ends:
            self._complete()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head:
            self._connection.transport.write(head)

    def answer_at_once(self, body: bytes) -> bool:
        """Send JSON with status 200 at once; return False if ASGI messages must be used instead."""
        transport = self._connection.transport
        if self._has_started or self._is_gone or not self.keeps_alive or transport.is_full:
            return False
        head = _JSON_HEAD % (transport.default_lines, len(body))
        transport.write(head + body)  # before changing any state, because it may raise MemoryError
        self._has_started = True
        self._complete()
        return True

    def _complete(self) -> None:
        self.is_complete = True
        self._arrived.set()
        if not self.keeps_alive:
            self._connection.transport.close()
        self._connection.on_response_complete()
