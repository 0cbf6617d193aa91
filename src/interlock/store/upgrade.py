"""Which version a database has, and how it gets to ours.

Alembic is imported only when there is something to do.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, select

from interlock.errors import MissingExtra, StoreCorrupt, StoreTooNew
from interlock.store.tables import REVISIONS, versions

# What the tables had before there were versions.
_FIRST_COLUMNS = {
    "conversations": {"id", "title", "model", "created", "updated"},
    "messages": {"conversation_id", "position", "role", "content", "created"},
}


def is_current(connection: Connection, place: str) -> bool:
    """Tell whether the database is as this program wants it, with one or two cheap queries.

    Raises:
        StoreTooNew: A version this program does not know.
    """
    revision = _revision(connection)
    if revision is not None and revision not in REVISIONS:
        raise StoreTooNew(
            f"{place} is of version {revision}, this program knows up to {REVISIONS[-1]}:"
            " upgrade interlock, or set INTERLOCK_DATABASE to another place"
        )
    return revision == REVISIONS[-1]


def upgrade(connection: Connection, place: str) -> None:
    """Bring the database to the version of this program.

    The caller holds a transaction that shuts other starters out, so look again before acting.

    Raises:
        StoreCorrupt: The tables are another program's.
        StoreTooNew: A version this program does not know.
    """
    if is_current(connection, place):
        return
    try:
        from alembic import command
        from alembic.config import Config
    except ModuleNotFoundError as error:
        raise MissingExtra("keeping conversations", "chat") from error

    config = Config(attributes={"connection": connection})
    folder = str(Path(__file__).with_name("migrations"))
    config.set_main_option("script_location", folder.replace("%", "%%"))
    if _revision(connection) is None and _has_tables(connection, place):
        command.stamp(config, REVISIONS[0])
    command.upgrade(config, "head")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(versions.name):
        return None
    return connection.scalar(select(versions.c.version_num))


def _has_tables(connection: Connection, place: str) -> bool:
    inspector = inspect(connection)
    present = set(inspector.get_table_names())
    if connection.dialect.name == "postgresql":
        present &= _FIRST_COLUMNS.keys()  # a server's database may well be shared
    for table in present:
        columns = {column["name"] for column in inspector.get_columns(table)}
        if not _FIRST_COLUMNS.get(table, {"no such table"}) <= columns:
            raise StoreCorrupt(
                f"{place} is another program's database (table {table!r}): choose another place"
            )
    if present and present != _FIRST_COLUMNS.keys():
        raise StoreCorrupt(f"{place} has only one of our tables: restore it from a backup")
    return bool(present)
