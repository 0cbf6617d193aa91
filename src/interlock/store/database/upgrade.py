"""Detection of a database's version, and its upgrade to this program's version.

A new database gets the tables in their current form; only an older one needs Alembic.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, insert, inspect, select

from interlock.errors import MissingExtra, StoreCorrupt, StoreTooNew
from interlock.store.database import search  # noqa: F401  # it adds the index of words to new databases
from interlock.store.database.revisions import REVISIONS
from interlock.store.database.tables import metadata, versions

# The columns of the tables before there were versions.
_FIRST_COLUMNS = {
    "conversations": {"id", "title", "model", "created", "updated"},
    "messages": {"conversation_id", "position", "role", "content", "created"},
}


def is_current(connection: Connection, location: str) -> bool:
    """Return whether the database has this program's version, by one or two cheap queries.

    Raises:
        StoreTooNew: A newer program wrote it.
    """
    revision = _revision(connection)
    if revision is not None and revision not in REVISIONS:
        raise StoreTooNew(
            f"{location} has version {revision}, this program supports up to {REVISIONS[-1]}:"
            " upgrade interlock, or set INTERLOCK_DATABASE to another location"
        )
    return revision == REVISIONS[-1]


def upgrade(connection: Connection, location: str) -> None:
    """Upgrade the database to this program's version.

    The caller holds a transaction that excludes other processes. One of them may have upgraded
    the database in the meantime, so the version is checked again.

    Raises:
        StoreCorrupt: The tables are another program's.
        StoreTooNew: A newer program wrote it.
    """
    if is_current(connection, location):
        return
    if _revision(connection) is None and not _has_tables(connection, location):
        metadata.create_all(connection, checkfirst=False)
        versions.create(connection, checkfirst=True)
        connection.execute(insert(versions).values(version_num=REVISIONS[-1]))
        return
    migrate(connection)


def migrate(connection: Connection) -> None:
    """Run the migrations that a database lacks.

    Raises:
        MissingExtra: Alembic is not installed.
    """
    try:
        from alembic import command
        from alembic.config import Config
    except ModuleNotFoundError as error:
        raise MissingExtra("keeping conversations", "chat") from error

    config = Config(attributes={"connection": connection})
    folder = str(Path(__file__).with_name("migrations"))
    config.set_main_option("script_location", folder.replace("%", "%%"))
    if _revision(connection) is None and inspect(connection).has_table("messages"):
        command.stamp(config, REVISIONS[0])
    command.upgrade(config, "head")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(versions.name):
        return None
    return connection.scalar(select(versions.c.version_num))


def _has_tables(connection: Connection, location: str) -> bool:
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    if connection.dialect.name == "postgresql":
        present &= _FIRST_COLUMNS.keys()  # other programs may share the database of a server
    for table in present:
        columns = {column["name"] for column in inspector.get_columns(table)}
        if not _FIRST_COLUMNS.get(table, {"no such table"}) <= columns:
            raise StoreCorrupt(
                f"{location} is another program's database (table {table!r}):"
                " choose another location"
            )
    if present and present != _FIRST_COLUMNS.keys():
        raise StoreCorrupt(f"{location} lacks one of its tables: restore it from a backup")
    return bool(present)
