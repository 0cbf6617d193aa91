"""Signals, sockets, and the database lock of a gateway's process."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.config.gateway import Address
from interlock.errors import ConfigError, StoreLocked
from interlock.store.database.location import find


@contextmanager
def on_signals(end: Callable[[], None], reload: Callable[[], None]) -> Iterator[None]:
    """Call `end` on SIGTERM and SIGINT, and `reload` on SIGHUP, while the context is open."""
    loop = asyncio.get_running_loop()
    handled = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: reload}
    for number, handle in handled.items():
        loop.add_signal_handler(number, handle)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


@contextmanager
def bound(address: Address) -> Iterator[socket.socket]:
    """Yield a socket that is bound to an address, and close it afterwards.

    Raises:
        ConfigError: The address is in use, or is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio disables Nagle's algorithm only on sockets that state their protocol.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address.host, address.port))
        except OSError as error:
            way_out = "; choose another port" if error.errno == errno.EADDRINUSE else ""
            raise ConfigError(f"cannot listen on {address}: {error.strerror}{way_out}") from None
        yield listener


@contextmanager
def only_gateway(location: str) -> Iterator[None]:
    """Lock a SQLite file against other gateways, because each gateway counts limits separately.

    Raises:
        StoreLocked: Another gateway uses the file.
    """
    found = find(location or None)
    if not isinstance(found, Path):
        yield
        return
    descriptor = os.open(f"{found}.serving", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreLocked(
                f"another gateway uses {found}: end it, or choose another gateway.database"
            ) from None
        yield
    finally:
        os.close(descriptor)


__all__ = ["bound", "on_signals", "only_gateway"]
