"""Tables of a later version of interlock, for tests of what is expanded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Column, Index, MetaData, String, Table

from interlock.store.database import creation, schema_version
from interlock.store.database.tables import metadata

REVISION = f"{int(schema_version.REVISION) + 1:04}"
ADDED = ["column keys.colour", "index keys_colour", "table later"]


def expand(replace: Callable[[Any, str, Any], None]) -> None:
    """Let this process be a program of the later version; `replace` works like `setattr`."""
    later = MetaData()
    for table in metadata.tables.values():
        table.to_metadata(later)
    keys = later.tables["keys"]
    keys.append_column(Column("colour", String, nullable=False, server_default="red"))
    Index("keys_colour", keys.c.colour)
    Table("later", later, Column("id", String, primary_key=True))
    replace(creation, "metadata", later)
    replace(schema_version, "REVISION", REVISION)
