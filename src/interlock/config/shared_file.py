"""Small files that other processes may read and edit at the same moment."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock import durable
from interlock.errors import ConfigError

MAX_FILE_BYTES = 1024 * 1024
LOCK_SECONDS = 5.0


def read(path: Path) -> bytes:
    """Read a whole file.

    Raises:
        ConfigError: It cannot be read, or is larger than `MAX_FILE_BYTES`.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes")
    return content


def edit(path: Path, content: Callable[[], bytes]) -> None:
    """Give a file new content; it is made, for its owner only, if there is none.

    Other processes that edit it at the same moment lose nothing, and no reader ever sees half
    a file.

    Args:
        path: The file. Missing folders above it are made.
        content: Gives the new content. Is called while no other process edits the file, so
            it reads the old content itself; what it raises leaves the file as it was.

    Raises:
        ConfigError: It cannot be written, or another process keeps it locked; or it is written,
            but the disk may not keep it.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path.parent):
            mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
            durable.replace(path, content(), mode)
    except durable.NotSynced as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from editing files in a folder. Leaves no lock file behind."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(f"another process keeps {folder} locked") from None
                time.sleep(0.01)  # flock waits without end, or not at all
        yield
    finally:
        os.close(descriptor)
