"""A uvicorn server on one port, with limits on connections."""

from __future__ import annotations

import asyncio
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from time import monotonic
from types import FrameType
from typing import Any, Literal, Protocol

from interlock.aio import ending_on_interrupt
from interlock.config.gateway import Address
from interlock.errors import ConfigError, MissingExtra
from interlock.server.http.listening import bound, listen
from interlock.server.http.responses import Receive, Scope, Send
from interlock.text.urls import is_loopback

try:
    import uvicorn

    from interlock.server.http.connections import BoundedConnection, bounded_connection
    from interlock.server.http.exchange import CountedTransport
    from interlock.server.http.proxies import Proxies
except ImportError as error:
    raise MissingExtra("serving HTTP", "serve") from error

HEADER_DEADLINE = 10.0  # seconds from the first byte of a request to the end of its headers
IDLE_CONNECTION = 30.0  # seconds between two requests
READ_DEADLINE = 30.0  # seconds within which a client must read some of the data that waits
_TICK = 0.1  # seconds
_HEADERS_TICKS = 10  # ticks between two checks for connections without headers
_UNREAD_TICKS = 50  # ticks between two checks for unread data, which take longer
_DRAIN_CHECK = 0.05  # seconds between two checks whether all requests have ended
DRAIN = 30.0  # the default of `UvicornServer.drain`, in seconds
MAX_PER_ADDRESS = 1_000  # connections from one address
MAX_SOCKET_FRAME = 256 * 1024  # bytes of a WebSocket frame; the application has lower limits


def check_exposure(
    host: str,
    *,
    protected: bool,
    remedy: str = "pass auth=... or unprotected=True to run_http in Python",
) -> None:
    """Refuse an address that other machines can reach, unless callers must authenticate.

    Raises:
        ConfigError: Anybody could use the server, or `host` contains a port.
    """
    name, _, port = host.rpartition(":")
    if port.isdecimal() and (":" not in name or name.endswith("]")):  # if `host` is not plain IPv6
        name = name.strip("[]") or "127.0.0.1"
        raise ConfigError(f"host {host!r} contains a port; use host={name!r}, port={port}")
    if protected or is_loopback(host):
        return
    raise ConfigError(f"other machines can reach {host}; listen on 127.0.0.1, or {remedy}")


def run_app(app: ServedApp, host: str, port: int, proxies: Sequence[str]) -> None:
    """Serve an application on a port until the process receives SIGTERM or SIGINT.

    Raises:
        ConfigError: The address cannot be used, or an item of `proxies` is not an address.
    """
    with bound(Address(host, port)) as listener, ending_on_interrupt():
        listen(listener)
        UvicornServer(app, host, port, on_start=announce, proxies=proxies).run([listener])


def announce(url: str) -> None:
    """Print a server's URL to stderr."""
    print(f"serving at {url}", file=sys.stderr, flush=True)


class ServedApp(Protocol):
    """An application that `UvicornServer` can serve, such as `HttpApp`."""

    @property
    def dropped(self) -> Counter[str]:
        """The numbers of dropped messages and requests, keyed by the reason."""
        ...

    @property
    def path(self) -> str:
        """The path of the endpoint, for the URL that is printed."""
        ...

    @property
    def under_way(self) -> int: ...

    def drain(self) -> None:
        """Refuse new requests; end idle sessions and streams; let running calls finish."""
        ...

    def end_streams(self) -> None:
        """End idle sessions and subscription streams; let running calls finish."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class UvicornServer(uvicorn.Server):
    """A server that runs an application until a signal arrives, or `end` is called.

    Args:
        app: The application to serve.
        host: The address to bind.
        port: The port to bind; 0 chooses a free port.
        on_start: Called with the URL once the server accepts connections.
        handles_signals: Whether SIGTERM and SIGINT end the server. If not, the caller must call
            `end`.
        refuses_while_draining: Whether to answer new requests with 503 while the last calls run,
            instead of refusing connections.
        takes_sockets: Whether the application also serves WebSockets.
        proxies: The addresses and networks of trusted reverse proxies.

    Raises:
        ConfigError: An item of `proxies` is not an address or a network.
    """

    def __init__(
        self,
        app: ServedApp,
        host: str,
        port: int,
        *,
        on_start: Callable[[str], object] | None = None,
        handles_signals: bool = True,
        refuses_while_draining: bool = False,
        takes_sockets: bool = False,
        proxies: Sequence[str] = (),
    ) -> None:
        self._app = app
        self._on_start = on_start
        self._handles_signals = handles_signals
        self._refuses_while_draining = refuses_while_draining
        self._in_headers: dict[BoundedConnection, float] = {}  # when the wait for headers began
        self.drain = DRAIN  # seconds that running requests may take when the server shuts down
        self._unread: dict[Any, tuple[int, float]] = {}  # bytes read by the client, and since when
        self._wake: Callable[[], object] | None = None  # ends the wait for the next tick
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=bounded_connection(
                    MAX_PER_ADDRESS, app.dropped, Proxies(proxies) if proxies else None
                ),
                ws=socket_protocol() if takes_sockets else "none",
                ws_per_message_deflate=False,
                ws_max_size=MAX_SOCKET_FRAME,
                lifespan="on",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
            )
        )

    @property
    def url(self) -> str:
        """The endpoint's URL, which is known once the server accepts connections."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{port}{self._app.path}"

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Bind the address."""
        await super().startup(sockets)
        if self.started and self._on_start is not None:
            self._on_start(self.url)

    async def main_loop(self) -> None:
        """Call `on_tick` every 0.1 s until the server must end.

        uvicorn's own loop notices the end up to 0.1 s later.
        """
        counter, ending, loop = 0, asyncio.Event(), asyncio.get_running_loop()
        self._wake = partial(
            loop.call_soon_threadsafe, ending.set
        )  # as a signal's handler calls it
        try:
            while not await self.on_tick(counter):
                counter += 1
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK):
                        await ending.wait()
        finally:
            self._wake = None

    async def on_tick(self, counter: int) -> bool:
        """Close connections that are idle or slow."""
        with suppress(MemoryError):  # the next tick tries again
            if counter % _HEADERS_TICKS == 0:
                self._end_late_connections(monotonic())
            if counter % _UNREAD_TICKS == 0:
                self._end_unread_connections(monotonic())
        return await super().on_tick(counter)

    def _end_late_connections(self, now: float) -> None:
        # Checking all connections in one place costs requests nothing, unlike a timer for each.
        every: set[Any] = {*self.server_state.connections}  # WebSockets are of another class
        connections = [each for each in every if isinstance(each, BoundedConnection)]
        self._in_headers = {
            each: self._in_headers.get(each, now) for each in connections if each.is_in_head
        }
        for connection, since in self._in_headers.items():
            if now - since > HEADER_DEADLINE:
                self._app.dropped["connection without headers"] += 1
                connection.transport.abort()
        for connection in connections:
            if connection.idle_since and now - connection.idle_since > IDLE_CONNECTION:
                connection.transport.close()

    def _end_unread_connections(self, now: float) -> None:
        # A response that a client does not read stays in memory, even after its connection is
        # closed.
        unread: dict[Any, tuple[int, float]] = {}
        for connection in list(self.server_state.connections):
            transport = connection.transport
            if isinstance(transport, CountedTransport) and (
                size := transport.get_write_buffer_size()
            ):
                read = transport.written - size
                before, since = self._unread.get(connection, (read, now))
                unread[connection] = read, since if read == before else now
                if read == before and now - since > READ_DEADLINE:
                    self._app.dropped["connection that is not read"] += 1
                    transport.abort()
        self._unread = unread

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first signal; end immediately on the second signal."""
        self.force_exit = self.should_exit
        super().handle_exit(sig, frame)
        if self._wake is not None:
            self._wake()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals during the block, unless the caller handles them."""
        with super().capture_signals() if self._handles_signals else nullcontext():
            yield

    def end(self) -> None:
        """Drain on the first call; end immediately on the second call."""
        self.force_exit = self.should_exit
        self.should_exit = True
        if self._wake is not None:
            self._wake()

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """Wait for running requests; end the streams, which have no end of their own; shut down."""
        if self._refuses_while_draining:
            self._app.drain()
            until = monotonic() + self.drain
            while self._app.under_way and monotonic() < until and not self.force_exit:  # noqa: ASYNC110 - uvicorn has no event for the second signal
                await asyncio.sleep(_DRAIN_CHECK)
        else:
            self._app.end_streams()
        state = self.server_state
        if self.servers and not state.connections and not state.tasks:
            for server in self.servers:  # uvicorn would wait for 0.1 s
                server.close()
            await self.lifespan.shutdown()
            return
        self.config.timeout_graceful_shutdown = math.ceil(self.drain)
        await super().shutdown(sockets)


def socket_protocol() -> Literal["websockets-sansio"]:
    """Return uvicorn's name for its WebSocket class, after importing the package that it needs."""
    if find_spec("websockets") is None:
        raise MissingExtra("serving WebSockets", "web")
    return "websockets-sansio"
