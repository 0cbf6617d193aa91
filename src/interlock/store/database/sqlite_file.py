"""A SQLite file and its write-ahead log, which all connections of this process share.

After a failed sync, a process cannot find out what is on the disk: the next sync may succeed
although the data that the failed sync should have written is lost. So the process stops writing to
that file and syncing it, and leaves its log in place. The next start reads the intact part of the
log.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from interlock.store.database import schema_version

# After this many commits of a connection, or when the log is longer than this many bytes, the log
# is copied into the file and starts over. It keeps its length then, because overwriting bytes and
# syncing takes half as long as extending a file and syncing.
COMMITS = 64
LONGEST_LOG = 8 * 1024 * 1024
CHECK_PAGES = 4096  # at start, check all of a file up to 16 MiB; this takes at most 10 ms

SETTINGS = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = FULL",  # so that a commit survives a power failure
    # SQLite does not report a failed sync of its automatic checkpoints, so the writers make them.
    "PRAGMA wal_autocheckpoint = 0",
    f"PRAGMA journal_size_limit = {LONGEST_LOG}",  # shorten the log to this when it starts over
)

_CHECK = "PRAGMA quick_check(1)"
_COMPATIBLE_FROM = "SELECT compatible_from FROM schema_compatibility"
_unsynced: set[Path] = set()


def mark_unsynced(file: Path) -> None:
    """Record that a sync of a file failed; `file` must not contain symbolic links."""
    _unsynced.add(file)


def is_unsynced(file: Path) -> bool:
    """Return whether a sync of the file failed in this process."""
    return file in _unsynced


def is_ready(file: Path) -> bool:
    """Return whether the file is intact and its tables can be used as they are.

    If it is not, `open_database` prepares the file, or raises an error with the reason.
    """
    if is_unsynced(file):
        return False
    try:
        with closing(sqlite3.connect(uri(file, mode="ro"), uri=True, timeout=0)) as connection:
            (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (since,) = connection.execute(_COMPATIBLE_FROM).fetchone()
            standing = schema_version.standing(revision, since, schema_version.REVISION)
            if mode != "wal" or standing not in ("current", "newer"):
                return False
            return bool(pages > CHECK_PAGES or connection.execute(_CHECK).fetchone() == ("ok",))
    except (sqlite3.Error, TypeError):  # TypeError: the version table has no row
        return False


def log_of(file: Path) -> Path:
    """Return the path of a file's write-ahead log."""
    return file.with_name(f"{file.name}-wal")


def needs_checkpoint(file: Path, commits: int, *, over: int) -> bool:
    """Return whether the log should be copied into the file, and no failed sync forbids it.

    Args:
        file: The path of the file, without symbolic links.
        commits: The number of commits of a connection since it last copied the log.
        over: The length in bytes above which the log is copied.
    """
    # Not `log_of`: each new `Path` adds strings to the interpreter's table of interned strings, so
    # frequent calls would make that table grow.
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
    """Keep connections from copying and deleting the log when they close, if a sync has failed.

    When the last connection closes, SQLite copies the log into the file and syncs. Within this
    context, the last connection is one that cannot write.
    """
    if file not in _unsynced:
        yield
        return
    reader = sqlite3.connect(uri(file, mode="ro"), uri=True)
    try:
        with suppress(sqlite3.Error):
            reader.execute("SELECT 1 FROM sqlite_master").close()  # opens the file and its log
        yield
    finally:
        reader.close()
