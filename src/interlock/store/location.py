"""Where conversations are: a SQLite file, or a PostgreSQL URL."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from platformdirs import user_data_path

from interlock.errors import StoreError


def find(place: str | Path | None) -> str | Path:
    """Return the PostgreSQL URL, or the absolute path, of the database to use.

    Args:
        place: A path or URL; None asks INTERLOCK_DATABASE, then the user's data folder.
    """
    place = place or os.environ.get("INTERLOCK_DATABASE")
    if not place:
        return user_data_path("interlock") / "conversations.db"
    if isinstance(place, str) and "://" in place:
        scheme = place.partition("://")[0]
        if scheme not in ("postgresql", "postgres"):
            raise StoreError(
                f"a {scheme}:// database is not supported: give a path, or a postgresql:// URL"
            )
        return place
    if str(place) == ":memory:":
        raise StoreError("conversations are kept in a file: give a path instead of ':memory:'")
    return Path(place).expanduser().absolute()


def public_name(url: str) -> str:
    """Return what may be shown of a PostgreSQL URL: server and database, no user, no password."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or parse_qs(parts.query).get("host", ["localhost"])[0]
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "PostgreSQL"
    return f"PostgreSQL {host}{port}{parts.path}"


def without_links(path: Path) -> Path:
    """Return the one name that a file has whatever link it is reached by, if there is one yet."""
    return path.resolve()


def prepare_file(path: Path) -> bool:
    """Make sure the file exists, for its owner only, and tell whether it can be written.

    Raises:
        StoreError: It is missing and cannot be created, or is no file, or cannot be read.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except FileExistsError as error:
        raise StoreError(f"{path} cannot be created: {path.parent} is not a folder") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be created: {error.strerror}") from error
    if not path.is_file():
        raise StoreError(f"{path} is not a file: choose another place")
    if not os.access(path, os.R_OK):
        raise StoreError(f"{path} cannot be read: check its rights")
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
