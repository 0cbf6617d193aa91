"""The lock of the gateway that serves from a SQLite file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.errors import StoreLocked
from interlock.store.database.location import find


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
