"""Files that only their owner can read or write, and file locks that end with the process."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from interlock import durable
from interlock.errors import StoreCorrupt, StoreError

MAX_FILE_BYTES = 1_048_576
_AGAIN = "log in again to replace it"


def read(path: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist.

    Raises:
        StoreCorrupt: The path is not a regular file, other users can access it, or it is larger
            than `MAX_FILE_BYTES`.
        StoreError: The file cannot be read.
    """
    try:
        # O_NONBLOCK, because opening a named pipe would otherwise wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if path.is_symlink():
            raise StoreCorrupt(f"{path} is a symbolic link: {_AGAIN}") from None
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    try:
        _check_private(path, os.fstat(descriptor))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE_BYTES:
        raise StoreCorrupt(f"{path} is over {MAX_FILE_BYTES:,} bytes: {_AGAIN}")
    return content


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise StoreCorrupt(f"{path} is not a regular file: {_AGAIN}")
    if status.st_uid != os.geteuid():
        raise StoreCorrupt(f"{path} belongs to another user: {_AGAIN}")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise StoreCorrupt(
            f"other users can open {path} (mode {mode:03o}) and may know its tokens: "
            f"{_AGAIN}, or chmod 600 it"
        )


def replace(path: Path, content: bytes) -> None:
    """Replace a file's content, as `interlock.durable.replace` does.

    Missing folders are created with mode 0700.

    Raises:
        OSError: The file could not be written, and still has its old content.
        StoreError: Other users can write to the file's folder. Or the file has its new content, but
            a power failure may bring back the old content.
    """
    _make_folder(path.parent)
    try:
        durable.replace(path, content)
    except durable.NotSynced as error:
        raise StoreError(str(error)) from None


def lock(path: Path) -> int:
    """Lock a file without waiting; create the file if it does not exist.

    Returns:
        A descriptor to pass to `unlock`. The lock ends with the process, too.

    Raises:
        BlockingIOError: The file is already locked, by this process or another process.
        OSError: The file cannot be created.
        StoreError: Other users can write to the file's folder.
    """
    _make_folder(path.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unlock(descriptor: int) -> None:
    """Unlock a file. Do not delete it: two processes could then lock two different files."""
    # Unlock explicitly, because a forked process may have a copy of the descriptor.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _make_folder(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise StoreError(f"other users can write to {folder}: make it yours, and chmod 700 it")
