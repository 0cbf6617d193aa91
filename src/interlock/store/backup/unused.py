"""Checks that this process may change a database as a whole: its user, and no other process."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.errors import StoreError, StoreLocked
from interlock.store.audit import writer_lock
from interlock.store.database.location import without_links
from interlock.store.database.serving_lock import only_gateway


@contextmanager
def unused(path: Path) -> Iterator[None]:
    """Keep gateways from serving from a SQLite file until the end of the block.

    Raises:
        StoreError: The file does not exist, or belongs to another user.
        StoreLocked: A gateway serves from the file, or another process records calls in it.
    """
    if not path.is_file():
        what = "is not a file" if path.exists() else "does not exist"
        raise StoreError(f"{path} {what}: give the file of the database")
    refuse_other_user(path)
    with only_gateway(str(path)):
        refuse_writers(path)
        yield


def refuse_writers(path: Path) -> None:
    """Raise an error if a process records calls in a SQLite file.

    Raises:
        StoreLocked: A process does so.
    """
    file = without_links(path)
    prefix = f"{file.name}-writer-"
    for each in file.parent.iterdir():
        writer = each.name.removeprefix(prefix)
        if writer != each.name and writer_lock.is_alive(file, writer):
            raise StoreLocked(f"another process records calls in {path}: end it first")


def refuse_other_user(path: Path) -> None:
    """Raise an error if a file or folder belongs to another user, such as the gateway's.

    That user could not use the files that this process would write, not even those of root.

    Raises:
        StoreError: It belongs to another user.
    """
    owner = path.stat().st_uid
    if owner != os.geteuid():
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = str(owner)
        raise StoreError(f"{path} belongs to the user {name}: run the command as that user")
