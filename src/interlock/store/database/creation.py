"""Creation and expansion of the tables; databases of other programs are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from sqlalchemy import Column, Connection, Index, Table, insert, inspect, select, update
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement
from sqlalchemy.sql.compiler import DDLCompiler

from interlock.errors import StoreCorrupt, StoreError, StoreTooNew
from interlock.store.database import schema_version
from interlock.store.database.tables import compatibility, metadata, set_conditions, versions

# Tables that exist while a copy or a restoration into the database is not complete
COPYING = "interlock_copy"
RESTORING = "interlock_restoration"
# Columns that existed even in the first development version, by table.
_FIRST_COLUMNS = {
    "conversations": {"id", "title", "model", "created", "updated"},
    "messages": {"conversation_id", "position", "role", "content", "created"},
}
Item: TypeAlias = Table | Column[Any] | Index


def is_usable(connection: Connection, location: str) -> bool:
    """Return whether the database has tables that this program can use as they are.

    Raises:
        StoreCorrupt: The tables are another program's.
        StoreError: A checkout of this program before its first release made the tables.
        StoreTooNew: A newer version of this program made the tables, which this one cannot use.
    """
    # Read all names in one query, because another process may create tables between two queries.
    names = set(inspect(connection).get_table_names())
    if RESTORING in names:
        raise StoreError(f"{location} is not wholly restored: run `interlock db restore` again")
    revision, since = _versions_of(connection, names)
    standing = schema_version.standing(revision, since, schema_version.REVISION)
    if standing in ("current", "newer"):
        return True
    is_server = connection.dialect.name == "postgresql"
    if COPYING in names:
        raise StoreError(f"{location} is not a whole copy yet: run `interlock db copy` again")
    # A version is not enough, because other programs also use Alembic's version table.
    if names >= _FIRST_COLUMNS.keys() and (revision is not None or _has_first_columns(connection)):
        if standing == "older":
            return False
        raise _unusable(location, revision, is_server=is_server)
    if is_server:
        names &= {*metadata.tables, versions.name}  # ignore tables that only other programs have
    if names:
        raise StoreCorrupt(
            f"{location} is another program's database (table {min(names)!r}):"
            " choose another location"
        )
    return False


def revision_of(connection: Connection) -> str | None:
    """Return the version of the database's tables; None if it states none."""
    return _versions_of(connection, set(inspect(connection).get_table_names()))[0]


def _versions_of(connection: Connection, names: set[str]) -> tuple[str | None, str | None]:
    """Return the version of the tables, and the oldest version whose programs can use them."""
    if versions.name not in names:
        return None, None
    revision = connection.scalar(select(versions.c.version_num))
    if compatibility.name not in names:
        return revision, None
    return revision, connection.scalar(select(compatibility.c.compatible_from))


def prepare(connection: Connection, location: str, *, on_request: bool = False) -> None:
    """Create the tables, or add what those of an older version lack.

    The caller must hold a transaction that excludes other processes; another process may have
    prepared the database in the meantime.

    Args:
        connection: A connection to the database.
        location: The database, for errors.
        on_request: Whether an operator asks for it. Then what tables of this version lack is added,
            too, and programs of the database's present version may become unable to use it.

    Raises:
        StoreError: The tables cannot be used; see `is_usable`.
    """
    revision = revision_of(connection)
    if is_usable(connection, location) and not (on_request and revision == schema_version.REVISION):
        return
    since = schema_version.COMPATIBLE_FROM
    if revision is None:
        metadata.create_all(connection, checkfirst=False)
        versions.create(connection, checkfirst=False)
        connection.execute(insert(versions).values(version_num=schema_version.REVISION))
        connection.execute(insert(compatibility).values(id=1, compatible_from=since))
        return
    if int(revision) < int(since) and not on_request:
        raise StoreError(
            f"{location} has tables of version {revision}, which programs of that version could not"
            " use any more after an upgrade: end them all, then run `interlock db upgrade`"
        )
    for item in list(missing(connection)):
        _add(connection, item)
    connection.execute(update(versions).values(version_num=schema_version.REVISION))
    connection.execute(update(compatibility).values(compatible_from=since))


def missing(connection: Connection) -> Iterator[Item]:
    """Yield the tables, columns and indexes that the database lacks, in the order to add them."""
    found = inspect(connection)
    names = set(found.get_table_names())
    for table in metadata.sorted_tables:
        if table.name not in names:
            yield table
            continue
        columns = {each["name"] for each in found.get_columns(table.name)}
        yield from (each for each in table.columns if each.name not in columns)
        indexes = {each["name"] for each in found.get_indexes(table.name)}
        yield from sorted(
            (each for each in table.indexes if each.name not in indexes),
            key=lambda it: str(it.name),
        )


def described(item: Item) -> str:
    """Return what an item is, such as "column keys.user"."""
    kind = type(item).__name__.lower()
    return (
        f"{kind} {item.table.name}.{item.name}"
        if isinstance(item, Column)
        else f"{kind} {item.name}"
    )


class _AddColumn(ExecutableDDLElement):
    def __init__(self, column: Column[Any]) -> None:
        self.column = column


@compiles(_AddColumn)
def _add_column(element: _AddColumn, compiler: DDLCompiler, **_: object) -> str:
    table = compiler.preparer.format_table(element.column.table)
    return f"ALTER TABLE {table} ADD COLUMN {compiler.get_column_specification(element.column)}"


def _add(connection: Connection, item: Item) -> None:
    if not isinstance(item, Column):
        if isinstance(item, Index) and item.table is not None:
            set_conditions(item.table, connection)
        item.create(connection, checkfirst=False)
        return
    connection.execute(_AddColumn(item))


def _has_first_columns(connection: Connection) -> bool:
    inspector = inspect(connection)
    return all(
        columns <= {column["name"] for column in inspector.get_columns(table)}
        for table, columns in _FIRST_COLUMNS.items()
    )


def _unusable(location: str, revision: str | None, *, is_server: bool) -> StoreError:
    if schema_version.standing(revision, None) == "too new":
        return StoreTooNew(
            f"{location} was made by a newer interlock (version {revision}): upgrade interlock,"
            " or set INTERLOCK_DATABASE to another location"
        )
    way_out = (
        "use another database or schema" if is_server else "move it away; a new one is created"
    )
    return StoreError(
        f"{location} was made by a checkout of interlock before its first release: {way_out}"
    )
