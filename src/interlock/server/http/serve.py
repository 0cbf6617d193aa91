"""A uvicorn server on one port, with limits on its connections."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from importlib.util import find_spec
from time import monotonic
from types import FrameType
from typing import Any, Literal, Protocol

from interlock.errors import ConfigError, MissingExtra
from interlock.server.http.responses import Receive, Scope, Send
from interlock.text.urls import is_loopback

try:
    import uvicorn

    from interlock.server.http.connections import BoundedConnection, bounded_connection
    from interlock.server.http.exchange import CountedTransport
except ImportError as error:
    raise MissingExtra("serving HTTP", "serve") from error

HEADER_DEADLINE = 10.0  # seconds from the first byte of a request to the end of its headers
IDLE_CONNECTION = 30.0  # seconds between two requests
READ_DEADLINE = 30.0  # seconds in which a client must read something of what waits for it
_HEADERS_TICKS = 10  # ticks of 0.1 s between two checks of connections without headers
_UNREAD_TICKS = 50  # the same for connections that are not read, which takes longer
_DRAIN_CHECK = 0.05  # seconds
DRAIN = 30.0  # seconds that running requests get when the server ends
MAX_PER_ADDRESS = 1_000  # connections from one address
MAX_SOCKET_FRAME = 256 * 1024  # bytes; the application has lower limits of its own


def check_exposure(host: str, *, protected: bool) -> None:
    """Refuse an address that other machines can reach, unless callers must authenticate.

    Raises:
        ConfigError: The server would be open to everybody, or the host contains a port.
    """
    name, _, port = host.rpartition(":")
    if port.isdecimal() and (":" not in name or name.endswith("]")):  # not an IPv6 address
        name = name.strip("[]") or "127.0.0.1"
        raise ConfigError(f"host {host!r} contains a port; use host={name!r}, port={port}")
    if protected or is_loopback(host):
        return
    raise ConfigError(
        f"other machines can reach {host}; listen on 127.0.0.1, or call run_http in Python with "
        "auth=... or unprotected=True"
    )


class ServedApp(Protocol):
    """An application that can be served, such as `HttpApp`."""

    @property
    def dropped(self) -> Counter[str]:
        """The number of dropped messages and requests, by reason."""
        ...

    @property
    def path(self) -> str:
        """The path to announce."""
        ...

    @property
    def under_way(self) -> int: ...

    def drain(self) -> None:
        """Refuse new requests, and end idle sessions and streams; running calls may finish."""
        ...

    def end_streams(self) -> None:
        """End idle sessions and subscription streams; running calls may finish."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class UvicornServer(uvicorn.Server):
    """Serves an application until a signal ends it, or `end` is called.

    Args:
        app: The application.
        host: Address to bind.
        port: Port to bind; 0 chooses a free one.
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
        self._in_headers: dict[BoundedConnection, float] = {}  # start of the wait
        self._unread: dict[Any, tuple[int, float]] = {}  # bytes read, and since when
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http=bounded_connection(MAX_PER_ADDRESS, app.dropped),
                ws=socket_protocol() if takes_sockets else "none",
                ws_per_message_deflate=False,
                ws_max_size=MAX_SOCKET_FRAME,
                lifespan="on",
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
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
        """Close connections that are idle or slow. Called each 0.1 s."""
        with suppress(MemoryError):  # the next tick tries again
            if counter % _HEADERS_TICKS == 0:
                self._end_late_connections(monotonic())
            if counter % _UNREAD_TICKS == 0:
                self._end_unread_connections(monotonic())
        return await super().on_tick(counter)

    def _end_late_connections(self, now: float) -> None:
        # Unlike timers for each connection, this costs requests nothing.
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
        # Whole responses wait in memory, and even a closed connection keeps them until it is lost.
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


def socket_protocol() -> Literal["websockets-sansio"]:
    """Return uvicorn's name for its class of WebSocket connections, which needs another package."""
    if find_spec("websockets") is None:
        raise MissingExtra("serving WebSockets", "web")
    return "websockets-sansio"
