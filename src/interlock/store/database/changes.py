"""The table `changes`, which has a row for each write that running gateways must notice.

A `ChangeFeed` reads the table every `POLL_EVERY` seconds, and notifies the followers of each kind
of rows. Each follower has its own `ChangeReader`, so it can also read the table at any other time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from sqlalchemy import Row, bindparam, delete, func, insert, select

from interlock import aio
from interlock.errors import InterlockError
from interlock.store.database.claims import Statement
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.tables import changes
from interlock.text.timestamps import now_micros

Kind = Literal["approvals", "credentials", "keys", "people", "pins", "plugins", "probe"]

POLL_EVERY = 0.9  # seconds, because some changes must take effect within a second
KEPT = 86_400 * 1_000_000  # microseconds after which a row is deleted
# In PostgreSQL, a transaction with a lower id may commit after one with a higher id. So this many
# ids below the highest id are read again.
_OVERLAP = 100
_ADD = "INSERT INTO changes (kind, key, at) VALUES (?, ?, ?)"
# Never delete the newest row, because SQLite would assign its id again.
_DELETE_OLD = "DELETE FROM changes WHERE at < ? AND id < (SELECT MAX(id) FROM changes)"

_log = logging.getLogger("interlock.gateway")

_NEWEST = select(func.max(changes.c.id))
_ADDED = select(changes.c.id, changes.c.kind, changes.c.key).where(
    changes.c.id > bindparam("newest") - _OVERLAP
)
# The newest row is read whatever its kind, because it sets the reader's position.
_ADDED_OF_KIND = _ADDED.where(
    (changes.c.kind == bindparam("kind")) | (changes.c.id == _NEWEST.scalar_subquery())
)

_Rows = Sequence[Row[int, str, str]]


class ChangeReader:
    """A reader of the rows that were added since its last call.

    Args:
        kind: The kind of rows to read; None for all kinds.

    Attributes:
        newest: The reader's position: the highest id in the table at the last call.
    """

    def __init__(self, kind: Kind | None = None) -> None:
        self.newest: int | None = None
        self._kind = kind
        self._seen: set[int] = set()

    async def read(self, connection: AsyncConnection) -> set[str]:
        """Return the keys of rows added since the last call; the first call may return old rows."""
        return {row.key for row in await self.rows(connection)}

    async def rows(self, connection: AsyncConnection) -> _Rows:
        """Return the rows added since the last call; the first call may return old rows."""
        found = None if self.newest is None else await self._after(self.newest, connection)
        if found is None or found[0] < (self.newest or 0):  # a backup was restored
            found = await self._after(await connection.scalar(_NEWEST) or 0, connection)
        self.newest, rows = found
        added = [row for row in rows if row.id not in self._seen]
        self._seen = {row.id for row in rows}
        return added

    async def _after(self, newest: int, connection: AsyncConnection) -> tuple[int, _Rows]:
        """Return the highest id, and all rows that may have been added after the id `newest`."""
        query = _ADDED if self._kind is None else _ADDED_OF_KIND
        told = {"newest": newest} if self._kind is None else {"newest": newest, "kind": self._kind}
        rows = (await connection.execute(query, told)).all()
        highest = max((row.id for row in rows), default=0)
        return highest, [row for row in rows if self._kind in (None, row.kind)]


class ChangeFeed:
    """A regular reading of the table `changes`, which all followers share."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._reader = ChangeReader()
        self._followers: set[_Follower] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[ChangeFeed, None]:
        """Read the table regularly until the end of the block."""
        async with aio.beside(self._poll()):
            yield self

    @asynccontextmanager
    async def follow(
        self, kind: Kind, step: Callable[[bool], Awaitable[None]], log: logging.Logger, source: str
    ) -> AsyncGenerator[None, None]:
        """Run `step` after each reading until the end of the block, even if `step` has failed.

        Of consecutive expected errors, only the first is logged. Unexpected errors are all logged.

        Args:
            kind: The kind of rows to follow.
            step: Called with whether rows of this kind may have been added since `step` succeeded.
            log: The logger for errors of `step`.
            source: The name of the rows in log messages.
        """
        follower = _Follower(kind)
        self._followers.add(follower)
        try:
            async with aio.beside(follower.run(step, log, source)):
                yield
        finally:
            self._followers.remove(follower)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_EVERY)
            if not self._followers:
                continue
            try:
                kinds = await self._database.read(self._added_kinds)
            except InterlockError:  # followers read the table themselves, and log this error
                kinds = None
            except Exception:  # continue, so that later changes are read
                _log.exception("changes could not be read")
                kinds = None
            for each in self._followers:
                each.wake(has_changed=kinds is None or each.kind in kinds)

    async def _added_kinds(self, connection: AsyncConnection) -> set[str] | None:
        """Return the kinds of rows added since the last call; None if any kind is possible."""
        before = self._reader.newest or 0
        added = await self._reader.rows(connection)
        if (self._reader.newest or 0) < before:  # the database was restored from a backup
            return None
        return {row.kind for row in added}


class _Follower:
    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._has_changed = True  # there may have been changes before the follower began
        self._woken = asyncio.Event()

    def wake(self, *, has_changed: bool) -> None:
        self._has_changed |= has_changed
        self._woken.set()

    async def run(
        self, step: Callable[[bool], Awaitable[None]], log: logging.Logger, source: str
    ) -> None:
        succeeded = True
        while True:
            await self._woken.wait()
            self._woken.clear()
            has_changed, self._has_changed = self._has_changed, False
            try:
                await step(has_changed)
                succeeded = True
                continue
            except InterlockError as error:
                if succeeded:
                    log.warning("%s cannot be read: %s", source, error)
            except Exception:  # continue, so that later changes are used
                log.exception("changes of %s could not be used", source)
            succeeded, self._has_changed = False, True


async def note_change(connection: AsyncConnection, kind: Kind, key: str) -> None:
    """Insert a change in the transaction of the write that it announces; delete old changes."""
    now = now_micros()
    added = await connection.execute(insert(changes).values(kind=kind, key=key, at=now))
    # Never delete the newest row, because SQLite would assign its id again.
    (id,) = added.inserted_primary_key or (0,)
    await connection.execute(delete(changes).where(changes.c.at < now - KEPT, changes.c.id < id))


def change_statements(kind: Kind, key: str) -> tuple[Statement, Statement]:
    """Return statements that insert a change and delete old changes, for an audit transaction."""
    now = now_micros()
    return (_ADD, [(kind, key, now)]), (_DELETE_OLD, [(now - KEPT,)])
