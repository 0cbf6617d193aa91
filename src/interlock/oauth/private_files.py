"""Files that are for their owner only, and locks that end with their process."""

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
    """Read a whole file; None if there is none.

    Raises:
        StoreCorrupt: It is not a file that only this user can read and write, or it is over
            `MAX_FILE_BYTES`.
        StoreError: It cannot be read.
    """
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for its writer.
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
        raise StoreCorrupt(f"{path} is no file: {_AGAIN}")
    if status.st_uid != os.geteuid():
        raise StoreCorrupt(f"{path} belongs to another user: {_AGAIN}")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise StoreCorrupt(
            f"{path} is open to other users (mode {mode:03o}), who may know its tokens: "
            f"{_AGAIN}, or chmod 600 it"
        )


def replace(path: Path, content: bytes) -> None:
    """Give a file new content, as `interlock.durable.replace` does.

    Missing folders are made for this user only.

    Raises:
        OSError: It cannot be written, and is the old one.
        StoreError: Others can write to its folder; or it is the new one, but a power cut may
            bring the old one back.
    """
    _make_folder(path.parent)
    try:
        durable.replace(path, content)
    except durable.NotSynced as error:
        raise StoreError(str(error)) from None


def lock(path: Path) -> int:
    """Lock a file, which is made if there is none, without waiting.

    Returns:
        A descriptor for `unlock`. The lock ends with the process, too.

    Raises:
        BlockingIOError: Another process has the lock, or another call of this one.
        OSError: The file cannot be made.
        StoreError: Others can write to its folder.
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
    """Give a lock back. Its file stays: deleting it would let two processes have a lock each."""
    # Closing is not enough: a forked process may have a copy of the descriptor.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _make_folder(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise StoreError(f"other users can write to {folder}: make it yours, and chmod 700 it")
