"""The location of the database: a SQLite file or a PostgreSQL URL."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from platformdirs import user_data_path

from interlock.errors import StoreError


def find(location: str | Path | None) -> str | Path:
    """Return the database to use, as a PostgreSQL URL or an absolute path.

    Args:
        location: A path or URL; None for the value of INTERLOCK_DATABASE, or else a file in the
            user's data folder.

    Raises:
        StoreError: The URL's kind of database is not supported.
    """
    location = location or os.environ.get("INTERLOCK_DATABASE")
    if not location:
        return user_data_path("interlock") / "conversations.db"
    if isinstance(location, str) and "://" in location:
        scheme = location.partition("://")[0]
        if scheme not in ("postgresql", "postgres"):
            raise StoreError(
                f"a {scheme}:// database is not supported: give a path, or a postgresql:// URL"
            )
        return location
    if str(location) == ":memory:":
        raise StoreError("conversations are kept in a file: give a path instead of ':memory:'")
    return Path(location).expanduser().absolute()


def folder_beside(location: str | Path | None) -> Path:
    """Return the folder for files that accompany a database, such as `gateway.key`.

    This is the folder of a SQLite file, or the user's data folder for PostgreSQL.
    """
    found = find(location)
    return found.parent if isinstance(found, Path) else user_data_path("interlock")


def public(location: str | Path | None) -> str:
    """Return the database that `find` finds, without user and password."""
    found = find(location)
    return public_name(found) if isinstance(found, str) else str(found)


def public_name(url: str) -> str:
    """Return a PostgreSQL URL's server and database, without user and password."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or parse_qs(parts.query).get("host", ["localhost"])[0]
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "PostgreSQL"
    return f"PostgreSQL {host}{port}{parts.path}"


def without_links(path: Path) -> Path:
    """Return a file's path without symbolic links, so that paths of one file are equal."""
    return path.resolve()


def prepare_file(path: Path) -> bool:
    """Create a missing file with access for its owner only; return whether it is writable.

    Raises:
        StoreError: The file cannot be created or read, or is not a file.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except FileExistsError as error:
        raise StoreError(f"{path} cannot be created: {path.parent} is not a folder") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be created: {error.strerror}") from error
    refuse_unreadable(path)
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)


def refuse_unreadable(path: Path) -> None:
    """Raise an error if a path is not a file that this user can read.

    Raises:
        StoreError: It is not.
    """
    if not path.is_file():
        raise StoreError(f"{path} is not a file: choose another location")
    if not os.access(path, os.R_OK):
        raise StoreError(f"{path} cannot be read: check its permissions")
