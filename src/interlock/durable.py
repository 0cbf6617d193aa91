"""Replaces files atomically, so that a crash or power cut leaves no partial file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class NotSynced(Exception):
    """The file was replaced, but after a power cut the old file may be back."""


def replace(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file's content atomically: even a power cut leaves the whole old or new content.

    Args:
        path: The file; its folder must exist. A symbolic link is replaced, not its target.
        content: The whole new content.
        mode: Permissions of the new file, whatever the umask is.

    Raises:
        OSError: The file cannot be written; the old file is unchanged.
        NotSynced: The file was replaced, but could not be synced to the disk.
    """
    with staged(path, content, mode) as put:
        put()


@contextmanager
def staged(path: Path, content: bytes, mode: int = 0o600) -> Iterator[Callable[[], None]]:
    """Write a file's new content beside it, and yield the function that replaces the file.

    Until the function is called, the file stays unchanged. The function raises the same errors as
    `replace`.

    Args:
        path: The file; see `replace`.
        content: The whole new content.
        mode: Permissions of the new file.

    Raises:
        OSError: The content cannot be written.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        yield lambda: _put(Path(temporary), path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _put(temporary: Path, path: Path) -> None:
    temporary.replace(path)
    _sync_folder(path)


def _sync_folder(path: Path) -> None:
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        # Do not restore the old file: that would be another write that may fail.
        raise NotSynced(
            f"{path} is written, but the disk may not keep it ({error.strerror}): check the disk"
        ) from None
