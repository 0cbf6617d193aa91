"""Preparation of a database for readers and writers with a driver of their own."""

from __future__ import annotations

from pathlib import Path

from interlock.store.database import sqlite_file
from interlock.store.database.location import find, without_links


async def prepare(location: str | Path | None) -> None:
    """Create the database if it is missing, and check it.

    Raises:
        StoreError: It cannot be used; the subclass and the text say why.
        MissingExtra: A package for this kind of database is not installed.
    """
    place = find(location)
    if isinstance(place, str) or not sqlite_file.is_ready(without_links(place)):
        # SQLAlchemy takes longer to import than a few records to write, or a page of them to read.
        from interlock.store.database.database import open_database

        await (await open_database(location)).close()


__all__ = ["prepare"]
