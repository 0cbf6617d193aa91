"""Small files that several processes read and edit at the same time."""

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
    """Return a file's content.

    Raises:
        ConfigError: The file cannot be read, or is larger than `MAX_FILE_BYTES`.
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
    """Replace a file's content; if the file is missing, create it for its owner only.

    Simultaneous edits by other processes are not lost, and readers never see an incomplete file.

    Args:
        path: The file; of a symbolic link, the target is replaced. Missing parent folders are
            created.
        content: Returns the new content. It is called while no other process can edit the file, so
            it should read the old content itself. If it raises, the file stays unchanged.

    Raises:
        ConfigError: The file cannot be written, or another process keeps it locked. Or the file was
            written, but a power failure may undo the change.
    """
    path = Path(os.path.realpath(path))
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
    """Lock a folder against edits by other processes; this creates no lock file."""
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
                time.sleep(0.01)  # flock has no timeout, so poll the lock
        yield
    finally:
        os.close(descriptor)
