"""Ports that are ours before anybody listens there, and after."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


def reserved() -> socket.socket:
    """Reserve a port on loopback, until the socket is closed.

    The system gives it to no other program, and connections are refused, except while a server
    listens there: one whose socket has SO_REUSEADDR, as servers' sockets do.
    """
    reserving = socket.socket()
    reserving.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserving.bind(("127.0.0.1", 0))
    return reserving


@contextmanager
def free_port() -> Iterator[int]:
    """Return a port without a listener."""
    with reserved() as reserving:
        yield reserving.getsockname()[1]
