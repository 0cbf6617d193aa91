"""The check that no gateway and no command uses a SQLite file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interlock.errors import StoreLocked
from interlock.store.audit import writer_lock
from interlock.store.database.location import without_links
from interlock.store.database.serving_lock import only_gateway


@contextmanager
def unused(path: Path) -> Iterator[None]:
    """Keep gateways from serving from a SQLite file until the end of the block.

    Raises:
        StoreLocked: A gateway serves from the file, or another process records calls in it.
    """
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
