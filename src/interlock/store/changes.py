"""The table `changes`: a row for each write that running gateways must notice."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Row, bindparam, delete, func, insert, select

from interlock.store.claims import Statement
from interlock.store.connection import AsyncConnection
from interlock.store.tables import changes
from interlock.timestamps import now_micros

KEPT = 86_400 * 1_000_000  # microseconds that a row is kept
# In PostgreSQL a transaction may commit after another one with a higher id, so this many ids
# before the highest one are read again.
_OVERLAP = 100
_ADD = "INSERT INTO changes (kind, key, at) VALUES (?, ?, ?)"
# The newest row always stays: SQLite would use its id a second time.
_DELETE_OLD = "DELETE FROM changes WHERE at < ? AND id < (SELECT MAX(id) FROM changes)"


_NEWEST = select(func.max(changes.c.id))
_ADDED = select(changes.c.id, changes.c.kind, changes.c.key).where(
    changes.c.id > bindparam("newest") - _OVERLAP
)


class ChangeReader:
    """Reads on from the rows that it has seen.

    Args:
        kind: The kind of the rows.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._seen: set[int] = set()
        self._newest: int | None = None  # the highest id at the last call

    async def read(self, connection: AsyncConnection) -> set[str]:
        """Return the keys of the rows that were added since the last call, at first of some."""
        found = None if self._newest is None else await _rows(connection, self._newest)
        if found is None or found[0] < (self._newest or 0):  # an older copy was restored
            found = await _rows(connection, await connection.scalar(_NEWEST) or 0)
        self._newest, rows = found
        keys = {row.id: row.key for row in rows if row.kind == self._kind}
        added = {key for id, key in keys.items() if id not in self._seen}
        self._seen = {*keys}
        return added


async def _rows(
    connection: AsyncConnection, newest: int
) -> tuple[int, Sequence[Row[int, str, str]]]:
    """Return the rows that may have been added after this one, and the highest id.

    They are of all kinds: each gateway reads them every second, and a second query for the highest
    id would cost more.
    """
    rows = (await connection.execute(_ADDED, {"newest": newest})).all()
    return max((row.id for row in rows), default=0), rows


async def note_change(connection: AsyncConnection, kind: str, key: str) -> None:
    """Add a row in the transaction of the write, and delete old rows."""
    now = now_micros()
    added = await connection.execute(insert(changes).values(kind=kind, key=key, at=now))
    # The newest row always stays: SQLite would use its id a second time.
    (id,) = added.inserted_primary_key or (0,)
    await connection.execute(delete(changes).where(changes.c.at < now - KEPT, changes.c.id < id))


def change_statements(kind: str, key: str) -> tuple[Statement, Statement]:
    """Return what adds a row, and deletes old rows, in a transaction of the audit trail."""
    now = now_micros()
    return (_ADD, [(kind, key, now)]), (_DELETE_OLD, [(now - KEPT,)])


__all__ = ["ChangeReader", "change_statements", "note_change"]
