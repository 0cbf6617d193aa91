"""Conversion of database errors to `StoreError`s. This module needs no SQLAlchemy.

The driver's text is shown only if it cannot contain a query parameter, such as a message's text.
"""

from __future__ import annotations

import re
import sqlite3

from interlock.errors import StoreCorrupt, StoreError, StoreLocked

_SQLITE: dict[int, tuple[type[StoreError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreLocked, "is locked by another process: try again when it is done"),
    sqlite3.SQLITE_LOCKED: (StoreLocked, "is locked by another process: try again when it is done"),
    sqlite3.SQLITE_CORRUPT: (StoreCorrupt, "is damaged: restore a backup, or move it away"),
    sqlite3.SQLITE_NOTADB: (StoreCorrupt, "is not a SQLite database: choose another location"),
    sqlite3.SQLITE_FULL: (StoreError, "cannot grow, the disk is full: free some space"),
    sqlite3.SQLITE_IOERR: (StoreError, "cannot be read or written: is the disk full or failing?"),
    sqlite3.SQLITE_READONLY: (StoreError, "is read-only: make the file and its folder writable"),
    sqlite3.SQLITE_CANTOPEN: (
        StoreError,
        "cannot be opened: check file and folder permissions",
    ),
    sqlite3.SQLITE_PERM: (StoreError, "cannot be opened: check file and folder permissions"),
}

_FAILED_SYNCS = {sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC}

_UNREAD = re.compile(r"error code[= ](\d+)")

# Locks of a session and prepared statements belong to one connection to the server.
POOLER = "is a transaction pooler, which interlock cannot use: connect to PostgreSQL directly"

# Keyed by SQLSTATE, a code of five characters, or its first characters. The longest match is used.
_POSTGRES: dict[str, tuple[type[StoreError], str]] = {
    "08": (StoreError, "has closed the connection: is the server running?"),
    "26000": (StoreError, POOLER),  # a prepared statement that another connection made
    "42P05": (StoreError, POOLER),
    "25006": (StoreError, "is read-only: connect to the primary server"),
    "40P01": (StoreLocked, "is busy, two writers blocked each other: try again"),
    "42501": (StoreError, "does not grant this user the rights it needs"),
    "53": (StoreError, "is out of connections or memory: try again later"),
    "53100": (StoreError, "cannot grow, the disk is full: free some space"),
    "55P03": (StoreLocked, "is locked by another process: try again when it is done"),
    "57014": (StoreLocked, "took too long to answer: try again"),
    "57P": (StoreError, "has closed the connection: is the server running?"),
    "XX001": (StoreCorrupt, "is damaged: restore a backup"),
    "XX002": (StoreCorrupt, "is damaged: restore a backup"),
}


def damage_error(verdict: str, location: str) -> StoreError:
    """Return the error for a file, given the result of SQLite's check."""
    code = _UNREAD.search(verdict)
    if code is not None and int(code[1]) & 0xFF == sqlite3.SQLITE_IOERR:
        # If a page cannot be read now, the file is not necessarily damaged.
        kind, text = _SQLITE[sqlite3.SQLITE_IOERR]
        return kind(f"{location} {text}")
    return StoreCorrupt(f"{location} is damaged: restore a backup, or move it away")


def is_failed_sync(error: Exception) -> bool:
    """Return whether an error means that a sync failed, so that written data may be lost."""
    return getattr(_cause(error), "sqlite_errorcode", None) in _FAILED_SYNCS


def unsynced_error(location: str) -> StoreError:
    """Return the error that every write raises after a failed sync."""
    return StoreError(
        f"{location}: the disk did not keep what was written (fsync failed), so nothing more is "
        "written there: check the disk, then start again"
    )


def store_error(error: Exception, location: str) -> StoreError:
    """Convert a database error to a `StoreError` that names the location and the remedy."""
    cause = _cause(error)
    if is_failed_sync(error):
        return unsynced_error(location)
    if isinstance(cause, sqlite3.Error) and hasattr(cause, "sqlite_errorcode"):
        # The code's low byte is the kind of error; the other bytes are details.
        kind, text = _SQLITE.get(cause.sqlite_errorcode & 0xFF, (StoreError, f"failed: {cause}"))
        return kind(f"{location} {text}")
    if "not allowed in statement pooling mode" in str(cause):  # PgBouncer has no code for it
        return StoreError(f"{location} {POOLER}")
    if sqlstate := getattr(cause, "sqlstate", None):
        for length in (5, 3, 2):
            if found := _POSTGRES.get(sqlstate[:length]):
                return found[0](f"{location} {found[1]}")
        return StoreError(f"{location} failed: PostgreSQL error {sqlstate}")
    if getattr(error, "connection_invalidated", False):
        return StoreError(f"{location} has closed the connection: is the server running?")
    if isinstance(cause, TimeoutError):
        return StoreLocked(f"{location} took too long to answer: try again")
    return StoreError(f"{location} failed: {type(cause).__name__}")


def _cause(error: Exception) -> Exception:
    return getattr(error, "orig", None) or error
