"""Serves a gateway on stdin and stdout until the client disconnects or a signal ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from interlock.auth.principal import Principal
from interlock.gateway.forwarding.server import ForwardingServer
from interlock.gateway.serving.process import on_signals
from interlock.policy import LOCAL_USER
from interlock.server.server_connection import ServerConnection
from interlock.transports.pipes import PipeTransport

# Answered even while the servers start, because clients wait only a few seconds for them.
HANDSHAKE = frozenset(("initialize", "ping", "server/discover"))


async def serve_stdio(
    server: ForwardingServer,
    source: int,
    target: int,
    *,
    view: str = "",
    reload: Callable[[], None] = lambda: None,
) -> None:
    """Serve the local user on two file descriptors until the client disconnects, or SIGTERM.

    Args:
        server: The gateway's server.
        source: The file descriptor to read from.
        target: The file descriptor to write to.
        view: The only view to serve; "" for all views.
        reload: Called on SIGHUP.
    """
    principal = Principal(LOCAL_USER.id, LOCAL_USER.scopes, view=view)
    transport = PipeTransport(source, target)
    early = frozenset[str]() if server.tells_of_servers else HANDSHAKE
    connection = ServerConnection(server, transport, principal, early=early)
    serving = asyncio.ensure_future(connection.serve())

    def end() -> None:
        if not connection.drain():  # this is a second signal, or the connection is not open
            serving.cancel()

    with on_signals(end, reload), suppress(asyncio.CancelledError):
        await serving
