"""The files of a server, which are looked at until one of them changes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

PAUSE = 0.2  # seconds between two looks
_SHARE = 20  # after a slow check, the pause is this many times the check's duration
MAX_FILES = 10_000

_Stamp = tuple[int, int, int]  # time in ns, size, inode


class WatchedFiles:
    """The Python files in a server's folder, and the files that it has imported.

    Args:
        file: The server's file.
    """

    def __init__(self, file: Path) -> None:
        self._folder = file.resolve().parent
        self._file = str(file.resolve())
        self._imported: set[str] = set()
        self._seen: dict[str, _Stamp | None] = {}
        self._pause = PAUSE
        self.mark()

    def mark(self) -> None:
        """Compare with the present state of the files from now on."""
        self._seen = self._look()

    def add(self, files: Iterable[str]) -> None:
        """Watch further files, as they are now."""
        for each in files:
            if each not in self._seen and len(self._imported) < MAX_FILES:
                self._imported.add(each)
                self._seen[each] = _stamp(each)

    async def changed(self) -> None:
        """Wait until a file has changed and, as editors write in steps, has stopped changing."""
        last = self._seen
        while True:
            await asyncio.sleep(self._pause)
            now = self._look()
            if now == last and now != self._seen:
                return
            last = now

    def _look(self) -> dict[str, _Stamp | None]:
        began = monotonic()
        found = {each: _stamp(each) for each in (self._file, *self._imported)}
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if entry.name.endswith(".py") and len(found) < MAX_FILES:
                        found[entry.path] = _stamp(entry.path)
        except OSError:  # the folder is being replaced
            pass
        self._pause = max(PAUSE, _SHARE * (monotonic() - began))
        return found


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - called often, and `Path` is slower
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
