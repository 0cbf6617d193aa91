"""Locks that show which audit writers of a SQLite file are alive.

Each writer locks its own file beside the database. The operating system releases the lock when the
process ends for any reason. The process that closes the chain of a dead writer takes its lock, and
deletes the file.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class WriterLock:
    """A writer's lock, which is held until `release`."""

    def __init__(self, database: Path, writer: str) -> None:
        self._path = _path_of(database, writer)
        self._descriptor = _opened(self._path)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    @classmethod
    def of_dead(cls, database: Path, writer: str) -> WriterLock | None:
        """Return the lock of a writer that is dead; None if another process holds it."""
        lock = cls.__new__(cls)
        lock._path = _path_of(database, writer)
        try:
            lock._descriptor = _opened(lock._path)
        except OSError:
            return None  # the process belongs to another user
        try:
            fcntl.flock(lock._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock._descriptor)
            return None
        return lock

    def release(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)


def is_alive(database: Path, writer: str) -> bool:
    """Return whether a process holds a writer's lock."""
    try:
        descriptor = os.open(_path_of(database, writer), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # the process belongs to another user
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _path_of(database: Path, writer: str) -> Path:
    return database.with_name(f"{database.name}-writer-{writer}")
