"""The listeners of a gateway, before anything is served on them."""

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
from interlock.gateway.serving.process import only_gateway
from interlock.server.http.listening import bound
from interlock.text import urls

DEFAULT = Address("127.0.0.1", 8080)


class Listeners(Struct, frozen=True):
    """Sockets that are bound, and do not accept connections yet.

    Attributes:
        public: The socket for clients.
        admin: The socket for operators; None if they have none of their own.
        key: A key that is valid for this run only; None if there are stored ones.
    """

    public: socket.socket
    admin: socket.socket | None = None
    key: str | None = None


@contextmanager
def listeners(
    settings: GatewaySettings, callers: GatewayCallers, address: Address | None = None
) -> Iterator[Listeners]:
    """Bind the sockets of a gateway, unless it may not be served.

    Args:
        settings: The settings of the gateway.
        callers: The callers of the gateway.
        address: The address to listen on; None for the configured one.

    Raises:
        ConfigError: The address cannot be used, or other machines can reach it without a key.
        MissingExtra: The packages for serving HTTP are not installed.
        StoreLocked: Another gateway uses the same SQLite file.
    """
    if find_spec("uvicorn") is None:  # it is imported later, while the servers start
        raise MissingExtra("serving HTTP", "serve")
    address = address or settings.listen or DEFAULT
    with ExitStack() as stack:
        stack.enter_context(only_gateway(settings.database))
        public = stack.enter_context(bound(address))
        admin = None if settings.admin is None else stack.enter_context(bound(settings.admin))
        yield Listeners(public, admin, _first_key(callers, address.host))


def address_of(listener: socket.socket) -> Address:
    """Return the address that a socket listens on."""
    host, port = listener.getsockname()[:2]
    return Address(host, port)


def _first_key(callers: GatewayCallers, host: str) -> str | None:
    """Return a key for this run, on loopback, unless another credential exists.

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
