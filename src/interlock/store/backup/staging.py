"""A folder that appears with all of its content or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.errors import StoreError, StoreLocked
from interlock.store.backup.manifest import sync_folder


@contextmanager
def locked_folder(path: Path, busy: str) -> Iterator[None]:
    """Create an empty folder for this process alone, and remove it at the end of the block.

    What a killed process has left in the folder is removed.

    Args:
        path: The folder, which only this user can enter.
        busy: The error if another process has it.

    Raises:
        StoreLocked: Another process has the folder.
        StoreError: The folder belongs to another user.
        OSError: The folder cannot be created.
    """
    descriptor = _opened(path, busy)
    try:
        _empty(path)
        yield
    finally:
        if _is_at(descriptor, path):
            shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def new_folder(folder: Path, busy: str) -> Iterator[Path]:
    """Yield an empty folder, which gets the name `folder` if the block succeeds.

    Args:
        folder: The path of the new folder; an empty folder there is replaced.
        busy: The error if another process makes the same folder.

    Raises:
        StoreError: There is something at the path already, or another process makes the same.
        OSError: The folder cannot be created.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = folder.resolve()
    refuse_content(folder)
    staging = folder.with_name(f".{folder.name}.partial")
    with locked_folder(staging, busy):
        yield staging
        for inner in (*(each for each in staging.iterdir() if each.is_dir()), staging):
            sync_folder(inner)
        refuse_content(folder)
        staging.rename(folder)
        sync_folder(folder.parent)


def refuse_content(folder: Path) -> None:
    """Raise an error unless a path is free, or an empty folder."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise StoreError(f"{folder} is not a folder: choose another one")
    if folder.is_dir() and any(folder.iterdir()):
        raise StoreError(f"{folder} is not empty: choose a new folder")


def _opened(path: Path, busy: str) -> int:
    while True:
        path.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_uid != os.geteuid():
                raise StoreError(f"{path} belongs to another user: remove it")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                os.fchmod(descriptor, 0o700)
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise StoreLocked(busy) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another process has renamed or removed the folder meanwhile


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _empty(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
