"""Creation of the tables, and refusal of databases with tables of other programs or versions."""

from __future__ import annotations

from sqlalchemy import Connection, insert, inspect, select

from interlock.errors import StoreCorrupt, StoreError, StoreTooNew
from interlock.store.database.schema_version import OUTDATED, REVISION, UNRELEASED
from interlock.store.database.tables import metadata, versions

# Columns that these tables had before the first version.
_FIRST_COLUMNS = {
    "conversations": {"id", "title", "model", "created", "updated"},
    "messages": {"conversation_id", "position", "role", "content", "created"},
}


def is_created(connection: Connection, location: str) -> bool:
    """Return whether the database has this program's tables.

    Raises:
        StoreCorrupt: The tables are another program's.
        StoreError: Another checkout made the tables.
        StoreTooNew: A newer program made the tables.
    """
    # Read all names in one query: another process may create the tables between two queries.
    names = set(inspect(connection).get_table_names())
    revision = connection.scalar(select(versions.c.version_num)) if versions.name in names else None
    if revision == REVISION:
        return True
    is_server = connection.dialect.name == "postgresql"
    # A version alone proves nothing: other programs use Alembic, too.
    if names >= _FIRST_COLUMNS.keys() and (revision is not None or _has_first_columns(connection)):
        raise _other_version(location, revision, is_server=is_server)
    if is_server:
        names &= {*metadata.tables, versions.name}  # ignores tables of other programs
    if names:
        raise StoreCorrupt(
            f"{location} is another program's database (table {min(names)!r}):"
            " choose another location"
        )
    return False


def create(connection: Connection, location: str) -> None:
    """Create the tables, unless another process has done so in the meantime.

    The caller holds a transaction that excludes other processes.

    Raises:
        StoreError: See `is_created`.
    """
    if not is_created(connection, location):
        metadata.create_all(connection, checkfirst=False)
        versions.create(connection, checkfirst=False)
        connection.execute(insert(versions).values(version_num=REVISION))


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
        maker = "another checkout"  # a version does not show which of two checkouts is older
    else:
        return StoreTooNew(
            f"{location} was made by a newer interlock (version {revision}): upgrade interlock,"
            " or set INTERLOCK_DATABASE to another location"
        )
    way_out = (
        "use another database or schema" if is_server else "move it away; a new one is created"
    )
    return StoreError(f"{location} was made by {maker} of interlock: {way_out}")
