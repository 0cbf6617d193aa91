"""Creation of the tables; databases with tables of other programs or versions are refused."""

from __future__ import annotations

from sqlalchemy import Connection, insert, inspect, select

from interlock.errors import StoreCorrupt, StoreError, StoreTooNew
from interlock.store.database.schema_version import (
    OUTDATED,
    REVISION,
    UNRELEASED,
    suffices,
)
from interlock.store.database.tables import compatibility, metadata, versions

COPYING = "interlock_copy"  # a table that exists while a copy into the database is not complete
# Columns that existed even in the first development version, by table.
_FIRST_COLUMNS = {
    "conversations": {"id", "title", "model", "created", "updated"},
    "messages": {"conversation_id", "position", "role", "content", "created"},
}


def is_created(connection: Connection, location: str) -> bool:
    """Return whether the database has tables that this program can use.

    Raises:
        StoreCorrupt: The tables are another program's.
        StoreError: Another development version of this program made the tables.
        StoreTooNew: A newer version of this program made the tables, which this one cannot use.
    """
    # Read all names in one query, because another process may create tables between two queries.
    names = set(inspect(connection).get_table_names())
    revision = connection.scalar(select(versions.c.version_num)) if versions.name in names else None
    if revision == REVISION:
        return True
    if revision is not None and compatibility.name in names:
        since = connection.scalar(select(compatibility.c.compatible_from))
        if since is not None and suffices(REVISION, since):
            return True
    is_server = connection.dialect.name == "postgresql"
    if COPYING in names:
        raise StoreError(f"{location} is not a whole copy yet: run `interlock db copy` again")
    # A version is not enough, because other programs also use Alembic's version table.
    if names >= _FIRST_COLUMNS.keys() and (revision is not None or _has_first_columns(connection)):
        raise _other_version(location, revision, is_server=is_server)
    if is_server:
        names &= {*metadata.tables, versions.name}  # ignore tables that only other programs have
    if names:
        raise StoreCorrupt(
            f"{location} is another program's database (table {min(names)!r}):"
            " choose another location"
        )
    return False


def create(connection: Connection, location: str) -> None:
    """Create the tables, unless another process has created them in the meantime.

    The caller must hold a transaction that excludes other processes.

    Raises:
        StoreError: The tables cannot be used; see `is_created`.
    """
    if not is_created(connection, location):
        metadata.create_all(connection, checkfirst=False)
        versions.create(connection, checkfirst=False)
        connection.execute(insert(versions).values(version_num=REVISION))
        connection.execute(insert(compatibility).values(id=1, compatible_from=REVISION))


def _has_first_columns(connection: Connection) -> bool:
    inspector = inspect(connection)
    return all(
        columns <= {column["name"] for column in inspector.get_columns(table)}
        for table, columns in _FIRST_COLUMNS.items()
    )


def _other_version(location: str, revision: str | None, *, is_server: bool) -> StoreError:
    if revision is None or revision in OUTDATED:
        maker = "an older checkout"
    elif revision.startswith(UNRELEASED):
        maker = "another checkout"  # their versions do not show which of two checkouts is older
    else:
        return StoreTooNew(
            f"{location} was made by a newer interlock (version {revision}): upgrade interlock,"
            " or set INTERLOCK_DATABASE to another location"
        )
    way_out = (
        "use another database or schema" if is_server else "move it away; a new one is created"
    )
    return StoreError(f"{location} was made by {maker} of interlock: {way_out}")
