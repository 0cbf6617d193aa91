"""Follows an audit trail: reads each record once, soon after it was written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from interlock.errors import AuditUnavailable
from interlock.store.audit.records import SELECTED, stored_object
from interlock.store.database.claims import Row
from interlock.types import JsonObject

POLL_EVERY = 0.5  # seconds between two looks for new records
AT_ONCE = 1_000  # records that are read in one query

_WRITERS = "SELECT writer, ended FROM audit_heads ORDER BY started, writer"
_NEXT = (
    f"SELECT {', '.join(SELECTED)} FROM audit"  # noqa: S608
    " WHERE writer = ? AND seq > ? ORDER BY seq LIMIT ?"
)
_SEQ, _AT = 1, 2  # positions in a row


class Fetching(Protocol):
    """Runs queries of an audit trail."""

    async def fetch(self, sql: str, *parameters: object) -> list[Row]: ...


class TrailFollower:
    """Reads all chains of a trail again and again, each from the last record that was read.

    The numbers of a chain grow without a gap, so no record is missed, whatever its time is. Writers
    that appear later are read from their first record, and purged records are skipped.

    Args:
        queries: Runs the queries.
        since: The time of the oldest records to read, in microseconds since 1970; None for all.
        on_failure: Called when the database cannot be read any more, with the reason.
        pause: Waits until the next look.
    """

    def __init__(
        self,
        queries: Fetching,
        since: int | None,
        on_failure: Callable[[str], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._queries = queries
        self._since = since
        self._on_failure = on_failure
        self._pause = pause
        self._read: dict[str, int] = {}  # the number of the last record that was read
        self._ended: set[str] = set()  # writers whose chains have been read to their ends
        self._has_failed = False

    async def records(self) -> AsyncIterator[Sequence[JsonObject]]:
        """Yield new records in batches, each batch of one chain, until cancelled.

        A database that cannot be read later is tried again until it can be.

        Raises:
            AuditUnavailable: The database cannot be read at the start.
        """
        await self._queries.fetch(_WRITERS)
        while True:
            try:
                async for rows in self._look():
                    yield [stored_object(row) for row in rows if self._is_wanted(row)]
                self._has_failed = False
            except AuditUnavailable as error:
                if not self._has_failed:
                    self._on_failure(str(error))
                self._has_failed = True
            await self._pause(POLL_EVERY)

    async def _look(self) -> AsyncIterator[list[Row]]:
        writers = await self._queries.fetch(_WRITERS)
        self._ended.intersection_update(writer for writer, _ in writers)  # heads may be purged
        for gone in self._read.keys() - {writer for writer, _ in writers}:
            del self._read[gone]
        for writer, ended in writers:
            if writer in self._ended:
                continue
            while rows := await self._queries.fetch(
                _NEXT, writer, self._read.get(writer, -1), AT_ONCE
            ):
                self._read[writer] = rows[-1][_SEQ]
                yield rows
            if ended is not None:
                self._ended.add(writer)

    def _is_wanted(self, row: Row) -> bool:
        at = row[_AT]
        return self._since is None or not isinstance(at, int) or at >= self._since
