"""A gateway's listening sockets, which are bound before the gateway starts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec

from msgspec import Struct

from interlock.config import GatewaySettings
from interlock.config.gateway import Address
from interlock.errors import ConfigError, MissingExtra
from interlock.gateway.callers import GatewayCallers
from interlock.gateway.serving.worker import Worker
from interlock.server.http.listening import bound
from interlock.store.database.serving_lock import only_gateway
from interlock.text import urls

DEFAULT = Address("127.0.0.1", 8080)


class Listeners(Struct, frozen=True):
    """Sockets that are bound but do not accept connections yet.

    Attributes:
        address: The address for clients.
        public: The socket for clients; None if a supervisor has it.
        admin: The socket for operators; None if operators have no separate listener.
        key: A key that is valid for this run only; None if stored keys exist.
        channel: The socket over which a supervisor hands connections; None without a supervisor.
        worker: The number of this worker and more; None without a supervisor.
    """

    address: Address
    public: socket.socket | None
    admin: socket.socket | None = None
    key: str | None = None
    channel: socket.socket | None = None
    worker: Worker | None = None


@contextmanager
def listeners(
    settings: GatewaySettings, callers: GatewayCallers, address: Address | None = None
) -> Iterator[Listeners]:
    """Bind a gateway's sockets, if it is safe to serve the gateway on them.

    Args:
        settings: The gateway's settings.
        callers: The credentials that the gateway accepts.
        address: The address to listen on; None for the configured address.

    Raises:
        ConfigError: The address cannot be used, or other machines can reach it and no key exists.
        MissingExtra: The packages for serving HTTP are not installed.
        StoreLocked: Another gateway uses the same SQLite file.
    """
    # fail now, because it is imported only after the servers start
    if find_spec("uvicorn") is None:
        raise MissingExtra("serving HTTP", "serve")
    address = address or settings.listen or DEFAULT
    with ExitStack() as stack:
        stack.enter_context(only_gateway(settings.database))
        public = stack.enter_context(bound(address))
        admin = None if settings.admin is None else stack.enter_context(bound(settings.admin))
        yield Listeners(address_of(public), public, admin, _first_key(callers, address.host))


@contextmanager
def listeners_of(
    worker: Worker, settings: GatewaySettings, callers: GatewayCallers
) -> Iterator[Listeners]:
    """Return the sockets of a worker. The first worker has the listener for operators as well.

    Raises:
        ConfigError: No credential exists: each worker would make a key of its own.
    """
    if not callers.exist:
        raise ConfigError("several workers need a stored key: interlock keys create NAME")
    with ExitStack() as stack:
        channel = stack.enter_context(socket.socket(fileno=worker.channel))
        admin = None
        if settings.admin is not None and worker.index == 0:
            admin = stack.enter_context(bound(settings.admin))
        yield Listeners(Address(worker.host, worker.port), None, admin, None, channel, worker)


def address_of(listener: socket.socket) -> Address:
    """Return the address that a socket listens on."""
    host, port = listener.getsockname()[:2]
    return Address(host, port)


def _first_key(callers: GatewayCallers, host: str) -> str | None:
    """Return a key for this run on a loopback address; None if another credential exists.

    Raises:
        ConfigError: Other machines can reach the address, and no key exists.
    """
    if urls.is_loopback(host):
        return callers.key_for_this_run()
    if not callers.exist:
        raise ConfigError(
            f"other machines can reach {host}; make a key first: interlock keys create NAME"
        )
    return None
