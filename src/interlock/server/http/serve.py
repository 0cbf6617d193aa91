"""Serve an application on a port with uvicorn, with limits for connections."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from time import monotonic
from types import FrameType
from typing import Any, Protocol
from urllib.parse import urlsplit

from interlock.errors import ConfigError, MissingExtra
from interlock.server.http.responses import AT_ONCE, Receive, Scope, Send
from interlock.urls import is_loopback

try:
    import uvicorn
    from uvicorn._types import ASGI3Application
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
except ImportError as error:
    raise MissingExtra("serving HTTP", "serve") from error

HEADER_DEADLINE = 10.0  # seconds from the first byte of a request to the end of its headers
IDLE_CONNECTION = 30.0  # seconds between two requests
READ_DEADLINE = 30.0  # seconds in which a client must read something of what waits for it
_HEADERS_TICKS = 10  # ticks of 0.1 s between two looks at connections without headers
_UNREAD_TICKS = 50  # the same for connections that are not read, which takes longer
_DRAIN_CHECK = 0.05  # seconds
DRAIN = 30.0  # seconds that running requests get when the server ends
MAX_PER_ADDRESS = 1_000  # connections from one address
MAX_HEAD = 64 * 1024  # bytes of a request's target and headers
MAX_CHUNK = 256 * 1024  # bytes that the event loop reads at once
MAX_SOCKET_FRAME = 256 * 1024  # bytes; the application has lower limits of its own
_JSON_HEAD = b"HTTP/1.1 200 OK\r\n%bcontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\n\r\n"


def check_exposure(host: str, *, protected: bool) -> None:
    """Refuse an address that other machines can reach, unless callers must authenticate.

    Raises:
        ConfigError: The server would be open to everybody.
    """
    if protected or is_loopback(host):
        return
    raise ConfigError(f"{host} can be reached by others: set auth=... or unprotected=True")


class ServedApp(Protocol):
    """What is served: `HttpApp` is one."""

    @property
    def dropped(self) -> Counter[str]:
        """Number of messages and requests that were dropped, by reason."""
        ...

    @property
    def path(self) -> str:
        """The path to announce."""
        ...

    @property
    def under_way(self) -> int:
        """How many requests are under way."""
        ...

    def drain(self) -> None:
        """Refuse new requests, and end idle sessions and streams; running calls may finish."""
        ...

    def end_streams(self) -> None:
        """End idle sessions and subscription streams; running calls may finish."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        ...


class UvicornServer(uvicorn.Server):
    """Serves an application until a signal ends it, or `end` is called.

    Args:
        app: The application.
        host: Address to bind.
        port: 0 takes a free one.
        announces: Print the URL on stderr once it is served.
        handles_signals: SIGTERM and SIGINT end it; otherwise the caller calls `end`.
        refuses_while_draining: While the last calls run, answer new ones with 503 instead of
            accepting no connections.
        takes_sockets: The application serves WebSockets, too.
    """

    def __init__(
        self,
        app: ServedApp,
        host: str,
        port: int,
        *,
        announces: bool = False,
        handles_signals: bool = True,
        refuses_while_draining: bool = False,
        takes_sockets: bool = False,
    ) -> None:
        self._app = app
        self._announces = announces
        self._handles_signals = handles_signals
        self._refuses_while_draining = refuses_while_draining
        self._in_headers: dict[Any, float] = {}  # since when
        self._unread: dict[Any, tuple[int, float]] = {}  # bytes that were read, and since when
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=bounded_connection(MAX_PER_ADDRESS, app.dropped),
                ws=socket_connection() if takes_sockets else "none",
                ws_per_message_deflate=False,
                ws_max_size=MAX_SOCKET_FRAME,
                lifespan="on",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=int(IDLE_CONNECTION),
                timeout_graceful_shutdown=int(DRAIN),
            )
        )

    @property
    def url(self) -> str:
        """The URL of the endpoint, once it is served."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{port}{self._app.path}"

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Bind the address, and print the URL."""
        await super().startup(sockets)
        if self.started and self._announces:
            print(f"serving at {self.url}", file=sys.stderr, flush=True)

    async def on_tick(self, counter: int) -> bool:
        """Close connections that send their headers, or read, too slowly. Called each 0.1 s."""
        with suppress(MemoryError):  # the next time will do
            if counter % _HEADERS_TICKS == 0:
                self._end_late_connections(monotonic())
            if counter % _UNREAD_TICKS == 0:
                self._end_unread_connections(monotonic())
        return await super().on_tick(counter)

    def _end_late_connections(self, now: float) -> None:
        # Unlike a timer for each connection, this costs requests nothing.
        self._in_headers = {
            each: self._in_headers.get(each, now)
            for each in self.server_state.connections
            if isinstance(each, HttpToolsProtocol)
            and each.timeout_keep_alive_task is None
            and (each.cycle is None or each.cycle.response_complete)
        }
        for connection, since in self._in_headers.items():
            if now - since > HEADER_DEADLINE:
                self._app.dropped["connection without headers"] += 1
                connection.transport.abort()

    def _end_unread_connections(self, now: float) -> None:
        # Whole responses wait in memory, and even a closed connection keeps them until it is lost.
        unread: dict[Any, tuple[int, float]] = {}
        for connection in list(self.server_state.connections):
            transport = connection.transport
            if isinstance(transport, HeadWithBody) and (size := transport.get_write_buffer_size()):
                read = transport.written - size
                before, since = self._unread.get(connection, (read, now))
                unread[connection] = read, since if read == before else now
                if read == before and now - since > READ_DEADLINE:
                    self._app.dropped["connection that is not read"] += 1
                    transport.abort()
        self._unread = unread

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first signal; end at once on the second."""
        self.force_exit = self.should_exit
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals, unless the caller does."""
        with super().capture_signals() if self._handles_signals else nullcontext():
            yield

    def end(self) -> None:
        """Drain; at the second call, end at once."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """End the streams, which never end by themselves, and then everything else."""
        if self._refuses_while_draining:
            self._app.drain()
            until = monotonic() + DRAIN
            while self._app.under_way and monotonic() < until and not self.force_exit:  # noqa: ASYNC110 - uvicorn has no event for the second signal
                await asyncio.sleep(_DRAIN_CHECK)
        else:
            self._app.end_streams()
        await super().shutdown(sockets)


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


def socket_connection() -> type[asyncio.Protocol]:
    """Return the class of WebSocket connections, which needs another package."""
    try:
        from interlock.server.http.sockets import SocketConnection
    except ImportError as error:
        raise MissingExtra("serving WebSockets", "web") from error
    return SocketConnection


def bounded_connection(max_per_address: int, dropped: Counter[str]) -> type[HttpToolsProtocol]:
    """Return a class of connections with limits, which counts what it drops."""
    shared = {"addresses": Counter(), "max_per_address": max_per_address, "dropped": dropped}
    return type("BoundedConnection", (_BoundedConnection,), shared)


class _BoundedConnection(HttpToolsProtocol):
    addresses: Counter[str]  # connections by address
    max_per_address: int
    dropped: Counter[str]
    address = ""
    is_refused = False
    chunk = 0  # bytes received last
    # Bytes since the request began or its body went on, at most: the first chunk may hold
    # others. They are its head, or what chunks of the body and trailers have around them.
    overhead = 0
    fields = sys.maxsize  # number of its headers, once they are complete
    answering: RequestResponseCycle
    extensions: Any  # of ASGI
    whole_transport: HeadWithBody

    # The parser itself accepts headers of any size; small ones take ten times their bytes.

    def on_message_begin(self) -> None:
        self.overhead = self.chunk
        self.fields = sys.maxsize
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        self.overhead = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        if self.overhead > MAX_HEAD and _size_of_head(self) > MAX_HEAD:
            self.is_refused = True
            raise ValueError("the head is too large")  # stops the parser
        if not self.url.startswith(b"/"):
            _use_host_of_target(self)
        self.fields = len(self.headers)
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.answering = cycle
        cycle.scope["extensions"] = self.extensions
        super()._start_asgi_task(cycle, app)

    def answer_at_once(self, scope: Scope, body: bytes) -> bool:
        # As the two messages of a response; see `AT_ONCE`.
        cycle = self.answering
        if cycle.scope is not scope or cycle.response_started or cycle.disconnected:
            return False
        if not cycle.keep_alive or self.flow.write_paused:
            return False
        defaults = [b"%b: %b\r\n" % header for header in cycle.default_headers]
        head = _JSON_HEAD % (b"".join(defaults), len(body))
        self.whole_transport.write_whole(head + body)  # first: memory may run out
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        cycle.on_response()
        return True

    def send_400_response(self, msg: str) -> None:
        if self.is_refused:
            self.refuse_head()
        else:
            super().send_400_response(msg)

    def refuse_head(self) -> None:
        self.dropped["HTTP 431"] += 1
        self.transport.write(_TOO_LONG)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        self.chunk = len(data)
        self.overhead += self.chunk
        super().data_received(data)
        del self.headers[self.fields :]  # trailers, which the parser adds to the headers
        if self.overhead > MAX_HEAD + MAX_CHUNK and not self.transport.is_closing():
            self.refuse_head()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as its parent
        self.whole_transport = HeadWithBody(transport)
        self.extensions = {AT_ONCE: self.answer_at_once}
        self.headers = []
        super().connection_made(self.whole_transport)  # type: ignore[arg-type] # all that is used
        self.address = self.client[0] if self.client else ""
        self.addresses[self.address] += 1
        if self.addresses[self.address] > self.max_per_address:
            self.dropped["too many connections of an address"] += 1
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.uncount()
        super().connection_lost(exc)
        # They refer to this connection, which would wait for the garbage collector.
        self.extensions.clear()

    def uncount(self) -> None:
        self.addresses[self.address] -= 1
        if not self.addresses[self.address]:
            del self.addresses[self.address]

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        protocol: Any = self.transport.get_protocol()
        if protocol is self:
            return
        lost = protocol.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self.uncount()  # this object has no connection any more
            lost(exc)

        protocol.connection_lost = connection_lost


def _size_of_head(connection: HttpToolsProtocol) -> int:
    lines = sum(len(name) + len(value) + 4 for name, value in connection.headers)
    return len(connection.url) + lines


def _use_host_of_target(connection: HttpToolsProtocol) -> None:
    """Replace `Host` by the host of a target such as `http://example.com/mcp` (RFC 9112, 3.2.2)."""
    target = urlsplit(connection.url.decode("latin-1")).netloc
    if target:
        others = [each for each in connection.headers if each[0] != b"host"]
        connection.headers[:] = [*others, (b"host", target.encode("latin-1"))]
