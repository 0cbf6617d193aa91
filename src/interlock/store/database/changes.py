"""The table `changes`, which has a row for each write that running gateways must notice.

A `ChangeFeed` reads the table every `POLL_EVERY` seconds, and notifies the followers of each kind
of rows. Each follower has its own `ChangeReader`, so it can also read the table at any other time.

In PostgreSQL, rows become visible in any order, because a transaction may commit long after others
that began later. Each row contains the id of its transaction (`txid`). A reader remembers the
oldest transaction that was running at its last call, and reads the rows of that transaction and of
all later ones again. SQLite runs one writing transaction at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from time import monotonic
from typing import Literal, NamedTuple

from sqlalchemy import delete, func, insert, select, text

from interlock import aio
from interlock.errors import InterlockError
from interlock.store.database.claims import Statement
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.tables import changes
from interlock.text.timestamps import now_micros

Kind = Literal[
    "approvals",
    "authorizations",
    "clients",
    "config",
    "credentials",
    "keys",
    "people",
    "pins",
    "plugins",
    "sessions",
]

POLL_EVERY = 0.5  # seconds, because some changes must take effect within a second
PATIENCE = 1.0  # seconds after which a running read shows that the database does not answer
KEPT = 86_400 * 1_000_000  # microseconds after which a row is deleted
_ADD = "INSERT INTO changes (kind, key, at) VALUES (?, ?, ?)"

_log = logging.getLogger("interlock.gateway")

# Both statements always return the newest row, because it shows whether a backup was restored.
_IN_SQLITE = text(
    "SELECT id, kind, key, 0, 0, 0 FROM changes"
    " WHERE id > :newest OR id = (SELECT max(id) FROM changes)"
)
_IN_POSTGRES = text(
    "SELECT added.id, added.kind, added.key, added.txid, server.running, server.now FROM"
    " (SELECT txid_snapshot_xmin(txid_current_snapshot()) AS running,"
    " CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) AS now) AS server"
    " LEFT JOIN changes AS added ON added.txid >= :running"
    " OR added.id = (SELECT max(id) FROM changes)"
)


class _Change(NamedTuple):
    id: int
    kind: str
    key: str
    txid: int  # the transaction that added the row; 0 in SQLite


class _Position(NamedTuple):
    newest: int  # the highest id in the table
    running: int  # in PostgreSQL, all transactions with lower ids have ended


_END = _Position(2**62, 2**62)  # a position after all rows


class ChangeReader:
    """A reader of the rows that were added since its last call.

    Args:
        kind: The kind of rows to read; None for all kinds.

    Attributes:
        was_restored: Whether the last call found that a backup of the database was restored.
        server_time: The time of the PostgreSQL server at the last call, in microseconds since 1970;
            0 for SQLite.
    """

    def __init__(self, kind: Kind | None = None) -> None:
        self.was_restored = False
        self.server_time = 0
        self._kind = kind
        self._position: _Position | None = None
        self._seen: set[tuple[int, int]] = set()

    async def read(self, connection: AsyncConnection) -> set[str]:
        """Return the keys of rows added since the last call; the first call may return old rows."""
        return {row.key for row in await self.rows(connection)}

    async def rows(self, connection: AsyncConnection) -> list[_Change]:
        """Return the rows added since the last call; the first call may return old rows."""
        before = self._position or _END
        position, rows = await self._after(before, connection)
        is_behind = position.newest < before.newest or position.running < before.running
        if is_behind:
            position, rows = await self._after(position, connection)
        self.was_restored = is_behind and self._position is not None
        added = [row for row in rows if (row.id, row.txid) not in self._seen]
        self._position, self._seen = position, {(row.id, row.txid) for row in rows}
        return [row for row in added if self._kind in (None, row.kind)]

    async def _after(
        self, position: _Position, connection: AsyncConnection
    ) -> tuple[_Position, list[_Change]]:
        """Return the end of the table, and all rows that may have been added after a position."""
        is_server = connection.dialect.name == "postgresql"
        told = {"running": position.running} if is_server else {"newest": position.newest}
        found = await connection.execute(_IN_POSTGRES if is_server else _IN_SQLITE, told)
        rows, running = [], 0
        for id, kind, key, txid, running, self.server_time in found.all():  # noqa: B007
            if id is not None:  # PostgreSQL returns its time even if the table is empty
                rows.append(_Change(id, kind, key, txid))
        return _Position(max((row.id for row in rows), default=0), running), rows


class ChangeFeed:
    """A regular reading of the table `changes`, which all followers share.

    Args:
        database: The database to read.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._reader = ChangeReader()
        self._followers: set[_Follower] = set()
        self._ahead = 0  # microseconds by which the server's clock is ahead of this machine's
        self._reading_since: float | None = None
        self._has_failed = False

    @property
    def is_answered(self) -> bool:
        """Whether the database answered the last read, and answers the running one in time."""
        since = self._reading_since
        return not self._has_failed and (since is None or monotonic() - since < PATIENCE)

    async def set_clock(self) -> None:
        """Read the server's time now rather than at the first regular reading."""
        await self._read()

    def now(self) -> int:
        """Return the database server's time, in microseconds since 1970."""
        return now_micros() + self._ahead

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
            self._reading_since, self._has_failed = monotonic(), True
            try:
                await self._read()
                self._has_failed = False
            except InterlockError:  # followers read the table themselves, and log this error
                self._wake(None)
            except Exception:  # continue, so that later changes are read
                _log.exception("changes could not be read")
                self._wake(None)
            self._reading_since = None

    async def _read(self) -> None:
        self._wake(await self.database.read(self._added_kinds))

    def _wake(self, kinds: Collection[str] | None) -> None:
        """Wake all followers; those of `kinds`, or all if it is None, have changes to read."""
        for each in self._followers:
            each.wake(has_changed=kinds is None or each.kind in kinds)

    async def _added_kinds(self, connection: AsyncConnection) -> set[str] | None:
        """Return the kinds of rows added since the last call; None if any kind is possible."""
        began = now_micros()
        added = await self._reader.rows(connection)
        if self._reader.server_time:
            self._ahead = self._reader.server_time - (began + now_micros()) // 2
        return None if self._reader.was_restored else {row.kind for row in added}


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
    """Insert a change in the transaction of the write that it announces."""
    await connection.execute(insert(changes).values(kind=kind, key=key, at=now_micros()))


def change_statement(kind: Kind, key: str) -> Statement:
    """Return the statement that inserts a change, for an audit transaction."""
    return _ADD, [(kind, key, now_micros())]


async def delete_old_changes(database: Database) -> None:
    """Delete the changes that every running gateway has read long ago."""
    # Never delete the newest row, because SQLite would assign its id again.
    newest = select(func.max(changes.c.id)).scalar_subquery()
    old = delete(changes).where(changes.c.at < now_micros() - KEPT, changes.c.id < newest)
    await database.write(lambda connection: connection.execute(old))
