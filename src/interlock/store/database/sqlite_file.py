"""One SQLite file and its write-ahead log, shared by all connections of this process.

After a failed sync, this process cannot find out what is on the disk: the next sync may succeed
without writing the data that the first one lost. So the process no longer writes to that file or
syncs it, and leaves its log in place. The next start reads the intact part of the log.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from interlock.store.database.schema_version import REVISION

# After so many commits of a connection, or above this length in bytes, the log is copied into the
# file and starts over. The log keeps its length then, because syncing overwritten bytes takes half
# the time of syncing a longer file.
COMMITS = 64
LONGEST_LOG = 8 * 1024 * 1024
CHECK_PAGES = 4096  # a file of up to 16 MiB is checked completely at start, in at most 10 ms

SETTINGS = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = FULL",  # a commit survives a power failure
    # SQLite does not report a failed sync when it copies the log by itself, so the writers do it.
    "PRAGMA wal_autocheckpoint = 0",
    f"PRAGMA journal_size_limit = {LONGEST_LOG}",  # bytes of a log that starts over
)

_CHECK = "PRAGMA quick_check(1)"
_unsynced: set[Path] = set()


def mark_unsynced(file: Path) -> None:
    """Record that a sync of the file failed; `file` has no symbolic links."""
    _unsynced.add(file)


def is_unsynced(file: Path) -> bool:
    """Return whether a sync of the file has failed in this process."""
    return file in _unsynced


def is_ready(file: Path) -> bool:
    """Return whether the file is intact and has this program's version.

    If not, `open_database` prepares it, or raises an error with the reason.
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
    except (sqlite3.Error, TypeError):  # TypeError: the table has no row
        return False


def log_of(file: Path) -> Path:
    """Return the path of the write-ahead log."""
    return file.with_name(f"{file.name}-wal")


def needs_checkpoint(file: Path, commits: int, *, over: int) -> bool:
    """Return whether the log should and may be copied into the file.

    Args:
        file: The path of the file, without symbolic links.
        commits: The number of a connection's commits since it last copied the log.
        over: The largest length of the log, in bytes.
    """
    # Not `log_of`, because each `Path` interns new strings, which makes the interpreter's table of
    # them grow.
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

    The last connection to close would copy the log into the file and sync. Within this context,
    the last one is a connection that cannot write.
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
