"""HTTP/1.1 connections with limits, and with a short path for a whole request in one piece.

httptools parses requests, and uvicorn accepts connections: `uvicorn.Config(http=...)` takes any
protocol class. uvicorn's own class for httptools is private and has none of these limits.

1. A head that a connection repeats is not parsed again, even with another `Content-Length`:
   clients send the same head for each call, and parsing takes longer than most other steps.
2. `UvicornServer` checks which connections are idle, so requests need no timers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

import httptools
from msgspec import Struct

from interlock.server.http.exchange import CountedTransport, ServedExchange
from interlock.server.http.request import SAID, RequestHeaders
from interlock.server.http.responses import AT_ONCE, Header, Scope

MAX_HEAD = 64 * 1024  # bytes of a request's target and headers
MAX_CHUNK = 256 * 1024  # bytes that the event loop reads at once
MAX_BODY_AHEAD = 64 * 1024  # bytes of a body that wait for the application
MAX_KEPT_HEAD = 2 * 1024  # bytes of a head that is kept
KEPT_HEADS = 4  # heads that are kept for a connection
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n"
_MALFORMED = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 30\r\nconnection: close\r\n\r\nInvalid HTTP request received."
)
_log = logging.getLogger(__name__)


class _Head(Struct, frozen=True):
    """A head that a connection has sent, after parsing.

    Attributes:
        scope: The scope of the request, to be copied; it has its `RequestHeaders`.
        place: The index of `Content-Length` among the headers.
    """

    scope: Scope
    place: int


def bounded_connection(max_per_address: int, dropped: Counter[str]) -> type[BoundedConnection]:
    """Return a class of connections with limits, which counts what it drops."""
    shared = {"addresses": Counter(), "max_per_address": max_per_address, "dropped": dropped}
    return type("BoundConnection", (BoundedConnection,), shared)


class BoundedConnection(asyncio.Protocol):
    """A connection of one client. uvicorn makes it and calls `shutdown`.

    Attributes:
        idle_since: When the last response was complete, by the monotonic clock; 0 if a request
            has begun since, or none has come.
        scope: The scope of the request that is being parsed, or was parsed last.
    """

    addresses: Counter[str]  # connections by address
    max_per_address: int
    dropped: Counter[str]
    transport: CountedTransport
    scope: Scope
    url = b""
    address = ""
    idle_since = 0.0
    is_refused = False
    is_between = True  # the parser has seen a whole message, and nothing of the next one
    is_in_fields = False  # the parser reads headers, not trailers
    expects_continue = False
    chunk = 0  # bytes of the last chunk received
    # Upper bound of the bytes since the request began or the last part of its body came: its head,
    # or the framing of chunks and the trailers. The first chunk may hold other requests, too.
    overhead = 0
    answering: ServedExchange | None = None
    newest: ServedExchange | None = None  # the exchange whose body is being parsed

    def __init__(
        self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None
    ) -> None:
        self._config = config
        self._app = config.loaded_app
        self._state = server_state
        self._app_state = app_state
        self._parser: Any = httptools.HttpRequestParser(self)
        # A request with `Connection: close` gets its response even if more data follows it.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._waiting: deque[ServedExchange] = deque()
        self._is_paused = False
        self.headers: list[Header] = []
        self.heads: dict[bytes, _Head] = {}
        self.extensions = {AT_ONCE: self.answer_at_once}

    # Connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, unless the address has too many connections."""
        self.transport = CountedTransport(transport, self._state)
        self._state.connections.add(self)
        peer, own = (transport.get_extra_info(each) for each in ("peername", "sockname"))
        self._client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        self._server = (str(own[0]), int(own[1])) if isinstance(own, tuple) else None
        self.address = self._client[0] if self._client else ""
        self.addresses[self.address] += 1
        if self.addresses[self.address] > self.max_per_address:
            self.dropped["too many connections of an address"] += 1
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as its parent
        """Notify the application, and release the connection."""
        self._uncount()
        self._state.connections.discard(self)
        for exchange in (self.answering, self.newest):
            if exchange is not None:
                exchange.disconnect()
        self.transport.resume_writing()
        # Break reference cycles, so that freeing the connection needs no garbage collection.
        self._parser = self.answering = self.newest = None
        self._waiting.clear()
        self.extensions.clear()
        self.heads.clear()

    def _uncount(self) -> None:
        self.addresses[self.address] -= 1
        if not self.addresses[self.address]:
            del self.addresses[self.address]

    def pause_writing(self) -> None:
        """Make the application wait until the client has read more."""
        self.transport.pause_writing()

    def resume_writing(self) -> None:
        self.transport.resume_writing()

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    def shutdown(self) -> None:
        """Close, after the response that is under way."""
        if self.is_answered:
            self.transport.close()
        elif self.newest is not None:
            self.newest.keeps_alive = False

    @property
    def is_answered(self) -> bool:
        """Whether no request waits for its response."""
        return self.newest is None or self.newest.is_complete

    @property
    def is_in_head(self) -> bool:
        """Whether the client has connected or begun a request, and not sent its whole head."""
        return not self.idle_since and self.is_answered

    # Parser. It accepts headers of any size; small ones take ten times their bytes.

    def data_received(self, data: bytes) -> None:
        """Begin the requests in the data, or continue the present one."""
        self.idle_since = 0.0
        was_between = self.is_between
        head, length = _split(data) if was_between else (b"", b"")
        known = self.heads.get(head)
        if known is not None and self.is_free:
            self._repeat(known, length, data[len(head) + len(length) :])
            return
        self.chunk = len(data)
        self.overhead += self.chunk
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._is_for_socket():
                self._become_socket()
                return
        except httptools.HttpParserError:
            self._refuse_malformed()
            return
        if self.overhead > MAX_HEAD + MAX_CHUNK and not self.transport.is_closing():
            self._refuse_head()
        elif head and self.is_between and known is None:
            self._keep_head(head, length)

    @property
    def is_free(self) -> bool:
        """Whether a further request can begin."""
        newest = self.newest
        return newest is None or (newest.is_complete and newest.keeps_alive)

    def on_message_begin(self) -> None:
        """Note where the head begins."""
        self.is_between = False
        self.is_in_fields = True
        self.expects_continue = False
        self.overhead = self.chunk
        self.url = b""
        self.headers = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header. Trailers are ignored."""
        if self.is_in_fields:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expects_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the request, unless its head is too large."""
        if self.overhead > MAX_HEAD and _size_of_head(self) > MAX_HEAD:
            self.is_refused = True
            raise ValueError("the head is too large")  # stops the parser
        self.is_in_fields = False
        if not self.url.startswith(b"/"):
            _use_host_of_target(self)
        version = self._parser.get_http_version()
        self.scope = self._scope(version)
        if self._parser.should_upgrade() and self._is_for_socket():
            return
        keeps_alive = version != "1.0" and self._parser.should_keep_alive()
        self._begin(
            ServedExchange(self, self.scope, keeps_alive=keeps_alive, expects=self.expects_continue)
        )

    def _scope(self, version: str) -> Scope:
        target = httptools.parse_url(self.url)
        path = target.path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "root_path": "",
            "headers": self.headers,
            "state": self._app_state.copy(),
            "method": self._parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": target.path,
            "query_string": target.query or b"",
            "extensions": self.extensions,
        }

    def on_body(self, body: bytes) -> None:
        self.overhead = 0
        exchange = self.newest
        if (
            exchange is not None
            and not exchange.is_complete
            and exchange.add(body) > MAX_BODY_AHEAD
        ):
            self.pause_reading()

    def on_message_complete(self) -> None:
        self.is_between = not self._parser.should_upgrade()
        if self.newest is not None:
            self.newest.end()

    # Requests

    def _begin(self, exchange: ServedExchange) -> None:
        """Answer a request, once earlier ones are answered."""
        is_next = self.is_answered
        self.newest = exchange
        if is_next:
            self._start(exchange)
        else:
            self.pause_reading()
            self._waiting.append(exchange)

    def _start(self, exchange: ServedExchange) -> None:
        self.answering = exchange
        task = asyncio.get_running_loop().create_task(exchange.run(self._app))
        task.add_done_callback(self._state.tasks.discard)
        self._state.tasks.add(task)

    def answer_at_once(self, scope: Scope, body: bytes) -> bool:
        """Send a response in one step instead of two messages; see `AT_ONCE`."""
        exchange = self.answering
        return exchange is not None and exchange.scope is scope and exchange.answer_at_once(body)

    def on_response_complete(self) -> None:
        """Begin the next request if it has arrived."""
        self._state.total_requests += 1
        if self.transport.is_closing():
            return
        self.resume_reading()
        if self._waiting:
            self._start(self._waiting.popleft())
        else:
            self.idle_since = monotonic()

    def _refuse_malformed(self) -> None:
        if self.is_refused:
            self._refuse_head()
            return
        _log.warning("invalid HTTP request received")
        self.transport.write(_MALFORMED)
        self.transport.close()

    def _refuse_head(self) -> None:
        self.dropped["HTTP 431"] += 1
        self.transport.write(_TOO_LONG)
        self.transport.close()

    # Heads that are repeated

    def _keep_head(self, head: bytes, length: bytes) -> None:
        """Keep the head of a request that came in one piece, split by `_split`.

        A head with repeated fields, `Transfer-Encoding` or `Expect` is not kept.
        """
        scope, newest = self.scope, self.newest
        said = RequestHeaders(self.headers)
        if said.repeated or b"transfer-encoding" in said.by_name or self.expects_continue:
            return
        if newest is None or newest.scope is not scope or not newest.keeps_alive:
            return
        scope[SAID] = said  # the present request uses it, too
        if len(self.heads) >= KEPT_HEADS:
            del self.heads[next(iter(self.heads))]
        place = self.headers.index((b"content-length", length))
        self.heads[head] = _Head({**scope}, place)

    def _repeat(self, head: _Head, length: bytes, body: bytes) -> None:
        """Begin a request whose head this connection has sent before."""
        headers = head.scope["headers"].copy()
        headers[head.place] = (b"content-length", length)
        self.scope = {
            **head.scope,
            "headers": headers,
            "state": self._app_state.copy(),
            SAID: head.scope[SAID].with_length(length),
        }
        exchange = self.newest = ServedExchange(self, self.scope, keeps_alive=True)
        exchange.add(body)
        exchange.end()
        self._start(exchange)

    # WebSocket

    def _is_for_socket(self) -> bool:
        if self._config.ws_protocol_class is None:
            return False
        said = dict(self.headers)
        tokens = [each.strip() for each in said.get(b"connection", b"").lower().split(b",")]
        return b"upgrade" in tokens and said.get(b"upgrade", b"").lower() == b"websocket"

    def _become_socket(self) -> None:
        """Pass the connection to uvicorn's class for WebSockets; its address still counts it."""
        self._state.connections.discard(self)
        lines = [b"%b: %b\r\n" % header for header in self.headers]
        begin = b"%b %b HTTP/1.1\r\n" % (self.scope["method"].encode(), self.url)
        protocol = self._config.ws_protocol_class(
            config=self._config, server_state=self._state, app_state=self._app_state
        )
        lost = protocol.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._uncount()  # this object has no connection any more
            lost(exc)

        protocol.connection_lost = connection_lost
        protocol.connection_made(self.transport)
        protocol.data_received(b"".join([begin, *lines, b"\r\n"]))
        self.transport.set_protocol(protocol)


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Return the head of data that is exactly one whole request, and its `Content-Length`.

    Returns:
        The head without the digits of `Content-Length`, and these digits; both empty if the data
        is anything else, or the head is long.
    """
    end = data.find(b"\r\n\r\n", 0, MAX_KEPT_HEAD)
    if end < 0 or not data.startswith(b"POST /"):
        return b"", b""
    # The line break keeps the end of another header's name from matching.
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
