"""The socket on which a server listens."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from interlock.config.gateway import Address
from interlock.errors import ConfigError


@contextmanager
def bound(address: Address) -> Iterator[socket.socket]:
    """Return a socket that is bound to an address.

    Raises:
        ConfigError: The address is in use, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio disables Nagle's algorithm only on sockets that state their protocol.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address.host, address.port))
        except OSError as error:
            raise _refusal(address, error) from None
        yield listener


def listen(listener: socket.socket) -> None:
    """Begin to accept connections on a bound socket.

    Raises:
        ConfigError: Another program has bound the same address in the meantime, and listens on it.
    """
    try:
        listener.listen()
    except OSError as error:
        raise _refusal(Address(*listener.getsockname()[:2]), error) from None


def _refusal(address: Address, error: OSError) -> ConfigError:
    way_out = "; choose another port" if error.errno == errno.EADDRINUSE else ""
    return ConfigError(f"cannot listen on {address}: {error.strerror}{way_out}")
