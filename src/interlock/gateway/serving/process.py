"""Signals, and the database lock of a gateway's process."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.errors import StoreLocked
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
