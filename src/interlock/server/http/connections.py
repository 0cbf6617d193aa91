"""Connections of uvicorn with limits, and with a short path for a whole request in one piece.

1. A head that a connection has sent before is not parsed again, whatever `Content-Length` says:
   clients repeat theirs for each call, and to parse it takes longer than much of what follows.
2. A connection is asked by `UvicornServer` whether it is idle, so requests need no timers.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from interlock.server.http.request import SAID, RequestHeaders
from interlock.server.http.responses import AT_ONCE, Scope

MAX_HEAD = 64 * 1024  # bytes of a request's target and headers
MAX_CHUNK = 256 * 1024  # bytes that the event loop reads at once
MAX_KEPT_HEAD = 2 * 1024  # bytes of a head that is kept
KEPT_HEADS = 4  # of a connection
_JSON_HEAD = b"HTTP/1.1 200 OK\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n"


class HeadWithBody:
    """A transport that sends the head of a response together with the body that follows.

    The host writes them one after the other, and each write costs a system call and may wake
    the client. A head without a body is sent at the end of the loop's turn.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.written = 0  # bytes, in all
        self.is_closing = transport.is_closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data, after the head that may be waiting."""
        self.written += len(data)
        head, self._head = self._head, b""
        if head:
            self._transport.write(head + data)
        elif data[:5] == b"HTTP/":
            self._head = bytes(data)
            asyncio.get_running_loop().call_soon(self._flush)
        else:
            self._transport.write(data)

    def write_whole(self, response: bytes) -> None:
        """Send a head together with its body."""
        self.written += len(response)
        if self._head:
            self._flush()
        self._transport.write(response)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        """Close, after what has been written."""
        self._flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Head(Struct, frozen=True):
    """A head that a connection has sent, as uvicorn has parsed it.

    Attributes:
        scope: Of the request, to be copied; it has its `RequestHeaders`.
        place: Of `Content-Length` among the headers.
    """

    scope: Any
    place: int


def bounded_connection(max_per_address: int, dropped: Counter[str]) -> type[BoundedConnection]:
    """Return a class of connections with limits, which counts what it drops."""
    shared = {"addresses": Counter(), "max_per_address": max_per_address, "dropped": dropped}
    return type("BoundConnection", (BoundedConnection,), shared)


class BoundedConnection(HttpToolsProtocol):
    """A connection of uvicorn.

    Attributes:
        idle_since: When the last response was complete, by the monotonic clock; 0 if a request
            has begun since, or none has come.
    """

    addresses: Counter[str]  # connections by address
    max_per_address: int
    dropped: Counter[str]
    address = ""
    idle_since = 0.0
    is_refused = False
    is_between = True  # the parser has seen a whole message, and nothing of the next one
    chunk = 0  # bytes received last
    # Bytes since the request began or its body went on, at most: the first chunk may hold
    # others. They are its head, or what chunks of the body and trailers have around them.
    overhead = 0
    fields = sys.maxsize  # number of its headers, once they are complete
    defaults: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")  # headers, and as they are sent
    answering: RequestResponseCycle
    extensions: Any  # of ASGI
    heads: dict[bytes, _Head]
    whole_transport: HeadWithBody

    # The parser itself accepts headers of any size; small ones take ten times their bytes.

    def on_message_begin(self) -> None:
        """Note where the head begins."""
        self.is_between = False
        self.overhead = self.chunk
        self.fields = sys.maxsize
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Add to the body."""
        self.overhead = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Begin the request, unless its head is too large."""
        if self.overhead > MAX_HEAD and _size_of_head(self) > MAX_HEAD:
            self.is_refused = True
            raise ValueError("the head is too large")  # stops the parser
        if not self.url.startswith(b"/"):
            _use_host_of_target(self)
        self.fields = len(self.headers)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End the body."""
        self.is_between = not self.parser.should_upgrade()
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.answering = cycle
        cycle.scope["extensions"] = self.extensions
        super()._start_asgi_task(cycle, app)

    def answer_at_once(self, scope: Scope, body: bytes) -> bool:
        """Answer as two messages of a response would; see `AT_ONCE`."""
        cycle = self.answering
        if cycle.scope is not scope or cycle.response_started or cycle.disconnected:
            return False
        if not cycle.keep_alive or self.flow.write_paused:
            return False
        if self.defaults[0] is not cycle.default_headers:  # they have another date each second
            lines = [b"%b: %b\r\n" % header for header in cycle.default_headers]
            self.defaults = cycle.default_headers, b"".join(lines)
        head = _JSON_HEAD % (self.defaults[1], len(body))
        self.whole_transport.write_whole(head + body)  # first: memory may run out
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        cycle.on_response()
        return True

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser does not accept."""
        if self.is_refused:
            self._refuse_head()
        else:
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        """Refuse a head that is too large, and close the connection."""
        self.dropped["HTTP 431"] += 1
        self.transport.write(_TOO_LONG)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Begin the requests that have come, or go on with them."""
        was_between = self.is_between
        head, length = _split(data) if was_between else (b"", b"")
        known = self.heads.get(head)
        if known is not None and self.is_free:
            self.idle_since = 0.0
            self._repeat(known, length, data[len(head) + len(length) :])
            return
        self.chunk = len(data)
        self.overhead += self.chunk
        super().data_received(data)
        del self.headers[self.fields :]  # trailers, which the parser adds to the headers
        if self.overhead > MAX_HEAD + MAX_CHUNK and not self.transport.is_closing():
            self._refuse_head()
        elif head and self.is_between and known is None:
            self._keep_head(head, length)

    @property
    def is_free(self) -> bool:
        """Whether a further request can begin."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or (cycle.response_complete and cycle.keep_alive)

    @property
    def is_in_head(self) -> bool:
        """Whether the client has connected or begun a request, and not sent its whole head."""
        cycle: RequestResponseCycle | None = self.cycle
        return not self.idle_since and (cycle is None or cycle.response_complete)

    def _keep_head(self, head: bytes, length: bytes) -> None:
        """Keep the head of a request that came whole, in one piece; both as `_split` returns them.

        It is not kept if it is not as plain as most.
        """
        scope = self.scope
        said = RequestHeaders(self.headers)
        if said.repeated or b"transfer-encoding" in said.by_name or self.expect_100_continue:
            return
        if self.cycle.scope is not scope or not self.cycle.keep_alive:
            return
        scope[SAID] = said  # type: ignore[literal-required] # as the request needs it, too
        if len(self.heads) >= KEPT_HEADS:
            del self.heads[next(iter(self.heads))]
        place = self.headers.index((b"content-length", length))
        self.heads[head] = _Head({**scope}, place)

    def _repeat(self, head: _Head, length: bytes, body: bytes) -> None:
        """Begin a request whose head this connection has sent before."""
        headers = head.scope["headers"].copy()
        headers[head.place] = (b"content-length", length)
        scope: Any = {
            **head.scope,
            "headers": headers,
            "state": self.app_state.copy(),
            SAID: head.scope[SAID].with_length(length),
        }
        self.scope = scope
        self.cycle = cycle = RequestResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        cycle.body += body
        cycle.more_body = False
        cycle.message_event.set()
        self._start_asgi_task(cycle, self.app)

    # As their parent's, but `UvicornServer` looks for idle connections, instead of a timer each.

    def _unset_keepalive_if_required(self) -> None:
        self.idle_since = 0.0

    def on_response_complete(self) -> None:
        """Begin the next request, if it has come already."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.idle_since = monotonic()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as its parent
        """Begin, unless too many connections come from the same address."""
        self.whole_transport = HeadWithBody(transport)
        self.extensions = {AT_ONCE: self.answer_at_once}
        self.headers = []
        self.heads = {}
        super().connection_made(self.whole_transport)  # type: ignore[arg-type] # all that is used
        self.address = self.client[0] if self.client else ""
        self.addresses[self.address] += 1
        if self.addresses[self.address] > self.max_per_address:
            self.dropped["too many connections of an address"] += 1
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the connection."""
        self._uncount()
        super().connection_lost(exc)
        # They refer to this connection, which would wait for the garbage collector.
        self.extensions.clear()
        self.heads.clear()

    def _uncount(self) -> None:
        self.addresses[self.address] -= 1
        if not self.addresses[self.address]:
            del self.addresses[self.address]

    def handle_websocket_upgrade(self) -> None:
        """Become a WebSocket, which counts for its address as well."""
        super().handle_websocket_upgrade()
        protocol: Any = self.transport.get_protocol()
        if protocol is self:
            return
        lost = protocol.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._uncount()  # this object has no connection any more
            lost(exc)

        protocol.connection_lost = connection_lost


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Split the head of a request that is whole, and is all that there is.

    Returns:
        The head without the digits of `Content-Length`, and these digits; both empty if the data
        is anything else, or the head is long.
    """
    end = data.find(b"\r\n\r\n", 0, MAX_KEPT_HEAD)
    if end < 0 or not data.startswith(b"POST /"):
        return b"", b""
    # At the beginning of a line, so that nothing else is taken for it.
    start = data.find(b"\r\nContent-Length: ", 0, end)
    if start < 0:
        start = data.find(b"\r\ncontent-length: ", 0, end)
    if start < 0:
        return b"", b""
    start += 18
    stop = data.find(b"\r", start)
    length = data[start:stop]
    if not length.isdigit() or len(length) > 9 or len(data) != end + 4 + int(length):
        return b"", b""
    return data[:start] + data[stop : end + 4], length


def _size_of_head(connection: BoundedConnection) -> int:
    lines = sum(len(name) + len(value) + 4 for name, value in connection.headers)
    return len(connection.url) + lines


def _use_host_of_target(connection: BoundedConnection) -> None:
    """Replace `Host` by the host of a target such as `http://example.com/mcp` (RFC 9112, 3.2.2)."""
    target = urlsplit(connection.url.decode("latin-1")).netloc
    if target:
        others = [each for each in connection.headers if each[0] != b"host"]
        connection.headers[:] = [*others, (b"host", target.encode("latin-1"))]
