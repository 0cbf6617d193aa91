"""A reserve of disk space for the audit trail, which other content must leave free."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from interlock.errors import StoreFull

RESERVE = 64 * 1024 * 1024  # bytes
CHECK_EVERY = 1.0  # seconds between two looks at the disk


def free_bytes(folder: Path) -> int:
    """Return the bytes that this user may still write to the folder's disk."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class DiskReserve:
    """Refuses content of users while a disk is nearly full.

    Args:
        folder: The folder on the disk; None to refuse nothing, as for a database elsewhere.
        free: Returns the free bytes of a folder's disk.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        free: Callable[[Path], int] = free_bytes,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._folder = folder
        self._free = free
        self._clock = clock
        self._left = 0  # free bytes at the last look, less what has been written since
        self._looked_at = float("-inf")

    def check(self, size: int) -> None:
        """Check that the reserve stays free after `size` more bytes.

        Raises:
            StoreFull: It would not.
        """
        if self._folder is None:
            return
        now = self._clock()
        if now - self._looked_at >= CHECK_EVERY:
            self._left, self._looked_at = self._free(self._folder), now
        if self._left - size < RESERVE:
            raise StoreFull(
                f"the disk of the gateway is nearly full ({self._left:,} bytes free, of which"
                f" {RESERVE:,} are for the audit trail); tell the operator"
            )
        self._left -= size
