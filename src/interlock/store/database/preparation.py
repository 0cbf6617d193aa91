"""Preparation of a database for readers and writers that do not use SQLAlchemy."""

from __future__ import annotations

from pathlib import Path

from interlock.store.database import sqlite_file
from interlock.store.database.location import find, without_links


async def prepare(location: str | Path | None) -> None:
    """Check a database, after creating it if it is missing.

    Raises:
        StoreError: The database cannot be used; the subclass and the text state the reason.
        MissingExtra: A package for this kind of database is not installed.
    """
    place = find(location)
    if isinstance(place, str) or not sqlite_file.is_ready(without_links(place)):
        # Imported here, because importing SQLAlchemy takes longer than a few reads or writes take.
        from interlock.store.database.database import open_database

        await (await open_database(location)).close()
