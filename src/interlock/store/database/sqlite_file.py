"""One SQLite file and its write-ahead log, shared by all connections of this process.

After a failed sync, nothing in this process can tell what is on the disk: the next sync may
succeed without writing what the first one lost. So the process no longer writes to that file, no
longer syncs it, and leaves its log in place. The next start reads from the log what is intact.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from interlock.store.database.schema_version import REVISION

# After so many commits of a connection, or from this length on, in bytes, the log is copied into
# the file and starts over. It keeps its length then: to write over a file costs a sync half the
# time that it takes to make the file longer.
COMMITS = 64
LONGEST_LOG = 8 * 1024 * 1024
CHECK_PAGES = 4096  # a file of up to 16 MiB is checked completely at start, in at most 10 ms

SETTINGS = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = FULL",  # a commit survives a power failure
    # SQLite does not report a failed sync when it copies the log by itself, so the writers do it.
    "PRAGMA wal_autocheckpoint = 0",
    f"PRAGMA journal_size_limit = {LONGEST_LOG}",  # of a log that starts over
)

_CHECK = "PRAGMA quick_check(1)"
_unsynced: set[Path] = set()


def mark_unsynced(file: Path) -> None:
    """Remember that a sync of the file failed; `file` is without symbolic links."""
    _unsynced.add(file)


def is_unsynced(file: Path) -> bool:
    """Return whether a sync of the file has failed in this process."""
    return file in _unsynced


def is_ready(file: Path) -> bool:
    """Return whether the file is whole and has this program's version.

    If not, `open_database` prepares it, or raises an error that says what is wrong.
    """
    if is_unsynced(file):
        return False
    try:
        with closing(sqlite3.connect(uri(file, mode="ro"), uri=True, timeout=0)) as connection:
            (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            if (revision, mode) != (REVISION, "wal"):
                return False
            return bool(pages > CHECK_PAGES or connection.execute(_CHECK).fetchone() == ("ok",))
    except (sqlite3.Error, TypeError):  # such as a table without a row
        return False


def log_of(file: Path) -> Path:
    """Return the path of the write-ahead log."""
    return file.with_name(f"{file.name}-wal")


def needs_checkpoint(file: Path, commits: int, *, over: int) -> bool:
    """Return whether the log should be copied into the file, and may be.

    Args:
        file: Without symbolic links.
        commits: How many a connection has made since it last copied the log.
        over: The longest that the log may be, in bytes.
    """
    # Not `log_of`: each path has new interned strings, and the interpreter's table of these grows
    # when many have come and gone.
    try:
        is_due = commits >= COMMITS or os.stat(f"{file}-wal").st_size > over  # noqa: PTH116
    except OSError:
        return False
    return is_due and file not in _unsynced


def uri(file: Path, **query: str) -> str:
    """Return the `file:` URI that SQLite opens."""
    return f"file:{quote(str(file))}?{'&'.join(f'{key}={value}' for key, value in query.items())}"


@contextmanager
def log_preserved(file: Path) -> Iterator[None]:
    """Keep the log in place while connections close, if a sync has failed.

    The last connection that closes would copy the log into the file and sync. Within this
    context, the last one is a connection that cannot write.
    """
    if file not in _unsynced:
        yield
        return
    reader = sqlite3.connect(uri(file, mode="ro"), uri=True)
    try:
        with suppress(sqlite3.Error):
            reader.execute("SELECT 1 FROM sqlite_master").close()  # opens file and log
        yield
    finally:
        reader.close()
