"""HTTP/1.1 connections with limits, and with a fast path for requests that arrive in one piece.

httptools parses requests, and uvicorn accepts connections: `uvicorn.Config(http=...)` accepts any
protocol class. uvicorn's own class for httptools is private and lacks these limits.

1. If a connection repeats a request's head, the head is not parsed again, even if `Content-Length`
   differs: clients send the same head for each call, and parsing is slower than most other steps.
2. `UvicornServer` checks regularly which connections are idle, so requests need no timers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

import httptools
from msgspec import Struct

from interlock.server.http.exchange import CountedTransport, ServedExchange
from interlock.server.http.proxies import Proxies
from interlock.server.http.request import SAID, RequestHeaders
from interlock.server.http.responses import AT_ONCE, Header, Scope

MAX_HEAD = 64 * 1024  # bytes of a request's target and headers
MAX_CHUNK = 256 * 1024  # bytes that the event loop reads in one step
MAX_BODY_AHEAD = 64 * 1024  # bytes of a body that are read before the application needs them
MAX_KEPT_HEAD = 2 * 1024  # bytes; longer heads are not kept for reuse
KEPT_HEADS = 4  # parsed heads that are kept per connection
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n"
_TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"retry-after: 60\r\ncontent-length: 38\r\nconnection: close\r\n\r\n"
    b"Too many requests of one address here."
)
_MALFORMED = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 30\r\nconnection: close\r\n\r\nInvalid HTTP request received."
)


class _Head(Struct, frozen=True):
    """A parsed request head that the connection has sent before.

    Attributes:
        scope: The ASGI scope to copy for each request; it contains the `RequestHeaders`.
        place: The index of `Content-Length` in the headers.
    """

    scope: Scope
    place: int


def bounded_connection(
    max_per_address: int, dropped: Counter[str], proxies: Proxies | None = None
) -> type[BoundedConnection]:
    """Return a class of connections with limits.

    Args:
        max_per_address: The most connections from one address, and the most requests that trusted
            proxies pass on from one address at the same time.
        dropped: Counts the connections and requests that are dropped.
        proxies: The trusted proxies; None if there are none.
    """
    shared = {
        "addresses": Counter(),
        "max_per_address": max_per_address,
        "dropped": dropped,
        "proxies": proxies,
    }
    return type("BoundConnection", (BoundedConnection,), shared)


class BoundedConnection(asyncio.Protocol):
    """A connection from one client. uvicorn creates it and calls `shutdown`.

    Attributes:
        address: The client's address. If a trusted proxy connects, it is the client of the request
            that is being answered.
        is_proxied: Whether a trusted proxy connects.
        is_counted: Whether `addresses` counts this connection.
        idle_since: When the last response was completed, by the monotonic clock; 0 while a request
            is in progress, or before the first request.
        scope: The ASGI scope of the request that is being parsed, or that was parsed last.
    """

    addresses: Counter[str]  # the number of connections by client address
    max_per_address: int
    dropped: Counter[str]
    proxies: Proxies | None = None
    transport: CountedTransport
    scope: Scope
    url = b""
    address = ""
    is_proxied = False
    is_counted = False
    idle_since = 0.0
    is_refused = False
    is_between = True  # whether the parser is exactly between two requests
    is_in_fields = False  # whether the parser is reading headers, and not trailers
    expects_continue = False
    piece = 0  # the number of bytes that the last read returned
    # The bytes received since the request began, or since the last part of its body: the head, or
    # the framing of chunks and the trailers. It counts whole reads, so it may be wrong by one read.
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
        # Answer a request with `Connection: close` even if more data follows it.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._waiting: deque[ServedExchange] = deque()
        self._is_paused = False
        self.headers: list[Header] = []
        self.heads: dict[bytes, _Head] = {}
        self.extensions = {AT_ONCE: self.answer_at_once}

    # Connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the connection, or close it if the address has too many connections."""
        self.transport = CountedTransport(transport, self._state)
        self._state.connections.add(self)
        peer, own = (transport.get_extra_info(each) for each in ("peername", "sockname"))
        self._client = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        self._server = (str(own[0]), int(own[1])) if isinstance(own, tuple) else None
        address = self._client[0] if self._client else ""
        self.is_proxied = self.proxies is not None and self.proxies.trusts(address)
        if not self.is_proxied and not self._count(address):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as its parent
        """Tell the application that the client has disconnected, and release the connection."""
        if self.is_counted:
            self._uncount()
        self._state.connections.discard(self)
        for exchange in (self.answering, self.newest):
            if exchange is not None:
                exchange.disconnect()
        self.transport.resume_writing()
        # Break reference cycles, so that the connection is freed without the garbage collector.
        self._parser = self.answering = self.newest = None
        self._waiting.clear()
        self.extensions.clear()
        self.heads.clear()

    def _count(self, address: str) -> bool:
        """Count the connection, or a proxy's request; return whether the address may have it."""
        self.address, self.is_counted = address, True
        self.addresses[address] += 1
        if self.addresses[address] <= self.max_per_address:
            return True
        self.dropped["too many connections of an address"] += 1
        return False

    def _uncount(self) -> None:
        self.is_counted = False
        self.addresses[self.address] -= 1
        if not self.addresses[self.address]:
            del self.addresses[self.address]

    def pause_writing(self) -> None:
        """Make the application wait until the client has read more data."""
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
        """Close the connection after the response in progress, if there is one."""
        if self.is_answered:
            self.transport.close()
        elif self.newest is not None:
            self.newest.keeps_alive = False

    @property
    def is_answered(self) -> bool:
        """Whether every request has its response."""
        return self.newest is None or self.newest.is_complete

    @property
    def is_in_head(self) -> bool:
        """Whether the client has connected or begun a request, but not sent the whole head."""
        return not self.idle_since and self.is_answered

    # Parser. It accepts headers of any size; small headers take ten times their size in memory.

    def data_received(self, data: bytes) -> None:
        """Parse received data: begin new requests, or continue the current request."""
        self.idle_since = 0.0
        was_between = self.is_between
        head, length = _split(data) if was_between else (b"", b"")
        known = self.heads.get(head)
        if known is not None and self.is_free:
            self._repeat(known, length, data[len(head) + len(length) :])
            return
        self.piece = len(data)
        self.overhead += self.piece
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
        """Whether another request can begin."""
        newest = self.newest
        return newest is None or (newest.is_complete and newest.keeps_alive)

    def on_message_begin(self) -> None:
        """Record where the head begins."""
        self.is_between = False
        self.is_in_fields = True
        self.expects_continue = False
        self.overhead = self.piece
        self.url = b""
        self.headers = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; ignore trailers."""
        if self.is_in_fields:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expects_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the request, or stop the parser if the head is too large."""
        if self.overhead > MAX_HEAD and _size_of_head(self) > MAX_HEAD:
            self.is_refused = True
            raise ValueError("the head is too large")  # the exception stops the parser
        self.is_in_fields = False
        if not self.url.startswith(b"/"):
            _use_host_of_target(self)
        version = self._parser.get_http_version()
        self.scope = self._scope(version)
        if self.is_proxied and self.proxies is not None:
            self.proxies.apply(self.scope)
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
        """Pass a request to the application once all earlier requests have been answered."""
        is_next = self.is_answered
        self.newest = exchange
        if is_next:
            self._start(exchange)
        else:
            self.pause_reading()
            self._waiting.append(exchange)

    def _start(self, exchange: ServedExchange) -> None:
        self.answering = exchange
        if self.is_proxied and not self._count(exchange.scope["client"][0]):
            self.transport.write(_TOO_MANY)
            self.transport.close()
            return
        task = asyncio.get_running_loop().create_task(exchange.run(self._app))
        task.add_done_callback(self._state.tasks.discard)
        self._state.tasks.add(task)

    def answer_at_once(self, scope: Scope, body: bytes) -> bool:
        """Send a response in one step instead of two ASGI messages; see `AT_ONCE`."""
        exchange = self.answering
        return exchange is not None and exchange.scope is scope and exchange.answer_at_once(body)

    def on_response_complete(self) -> None:
        """Begin the next request, if it has arrived."""
        self._state.total_requests += 1
        if self.is_proxied:
            self._uncount()
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
        self.dropped["HTTP 400"] += 1  # not logged: nobody has proved who they are
        self.transport.write(_MALFORMED)
        self.transport.close()

    def _refuse_head(self) -> None:
        self.dropped["HTTP 431"] += 1
        self.transport.write(_TOO_LONG)
        self.transport.close()

    # Heads that a connection repeats

    def _keep_head(self, head: bytes, length: bytes) -> None:
        """Keep the head of a request that arrived in one piece, as `_split` has returned it.

        Heads with repeated fields, `Transfer-Encoding` or `Expect` are not kept.
        """
        scope, newest = self.scope, self.newest
        said = RequestHeaders(self.headers)
        if said.repeated or b"transfer-encoding" in said.by_name or self.expects_continue:
            return
        if newest is None or newest.scope is not scope or not newest.keeps_alive:
            return
        scope[SAID] = said  # so that the current request uses the parsed headers, too
        if len(self.heads) >= KEPT_HEADS:
            del self.heads[next(iter(self.heads))]
        place = self.headers.index((b"content-length", length))
        self.heads[head] = _Head({**scope}, place)

    def _repeat(self, head: _Head, length: bytes, body: bytes) -> None:
        """Begin a request whose head this connection has sent before and kept."""
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
        """Pass the connection to uvicorn's WebSocket class; it still counts for the address."""
        if self.is_proxied and not self._count(self.scope["client"][0]):
            self.transport.write(_TOO_MANY)
            self.transport.close()
            return
        self._state.connections.discard(self)
        lines = [b"%b: %b\r\n" % header for header in self.headers]
        begin = b"%b %b HTTP/1.1\r\n" % (self.scope["method"].encode(), self.url)
        protocol = self._config.ws_protocol_class(
            config=self._config, server_state=self._state, app_state=self._app_state
        )
        lost = protocol.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._uncount()  # because `connection_lost` is no longer called on this object
            lost(exc)

        protocol.connection_lost = connection_lost
        protocol.connection_made(self.transport)
        protocol.client, protocol.server = self.scope["client"], self.scope["server"]
        protocol.data_received(b"".join([begin, *lines, b"\r\n"]))
        self.transport.set_protocol(protocol)


def _split(data: bytes) -> tuple[bytes, bytes]:
    """Split data that is exactly one request into its head and the value of `Content-Length`.

    Returns:
        The head without the digits of `Content-Length`, and the digits. Both are empty if the data
            is not exactly one request, or if the head is too long to keep.
    """
    end = data.find(b"\r\n\r\n", 0, MAX_KEPT_HEAD)
    if end < 0 or not data.startswith(b"POST /"):
        return b"", b""
    # Search from the line break, so that a header whose name ends in this way does not match.
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
    """Set `Host` to the host of an absolute target: `http://example.com/mcp` (RFC 9112, 3.2.2)."""
    target = urlsplit(connection.url.decode("latin-1")).netloc
    if target:
        others = [each for each in connection.headers if each[0] != b"host"]
        connection.headers[:] = [*others, (b"host", target.encode("latin-1"))]
