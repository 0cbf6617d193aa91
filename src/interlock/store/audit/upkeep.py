"""Upkeep of an audit trail: starts and stops, signatures, rollups and retention.

1. A writer records "started" first and "stopped" last. If a writer was killed, another one closes
   its chain, at its start or within a minute, and records each of its calls without an outcome as
   "unfinished".
2. The end of a growing chain is signed at least once a minute.
3. The counts of calls per minute are summed into longer spans; see `rollups`.
4. Expired records are deleted in whole days, from the start of each chain. The hash of the last
   deleted record is signed in the chain's head, so that the remaining records can be verified.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import starmap
from pathlib import Path

import msgspec
from msgspec.structs import replace

from interlock import aio
from interlock.aio import beside
from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Audit, Keep
from interlock.errors import AuditUnavailable
from interlock.store.audit import copies, rollups
from interlock.store.audit.copies import copy_folder
from interlock.store.audit.heads import (
    FIRST_HASH,
    SELECT_HEADS,
    ChainHash,
    StoredHead,
    change_head,
)
from interlock.store.audit.reading import AuditReader
from interlock.store.audit.records import SELECTED, as_text
from interlock.store.audit.writer import (
    SIGN_EVERY,
    AuditRecord,
    AuditWriter,
    Head,
)
from interlock.store.database.claims import Row
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

DAY = 86_400 * 1_000_000  # microseconds
MINUTE = 60 * 1_000_000
PURGE_EVERY = 3_600.0  # seconds between two purges
PURGED_AT_ONCE = 200  # records that are deleted in one transaction
CHECKED_AT_ONCE = 1_000  # records that are read in one query before their chain is closed
PURGE_PAUSE = 0.05  # seconds between two transactions, so that calls can write their records

_DEAD = f"{SELECT_HEADS} WHERE ended IS NULL AND writer <> ?"
_IS_CLOSED = (
    "SELECT 1 FROM audit WHERE call = ? AND kind IN ('outcome', 'refused', 'unfinished') LIMIT 1"
)
_RECORDS = (
    f"SELECT {', '.join(SELECTED[1:])} FROM audit WHERE writer = ? AND seq >= ?"  # noqa: S608
    " ORDER BY seq LIMIT ?"
)
_HEADS = f"{SELECT_HEADS} WHERE started < ?"
_DELETE = "DELETE FROM audit WHERE writer = ? AND seq <= ?"
_STATE = "SELECT base_seq, ended FROM audit_heads WHERE writer = ?"
_PURGED_HEADS = "SELECT writer FROM audit_heads WHERE base_seq > 0 AND base_seq = seq AND ended < ?"

_ENDS = frozenset(("outcome", "refused", "unfinished"))  # kinds that end a call
_log = logging.getLogger("interlock.audit")


class _Damaged(Exception):
    """A chain was changed, so its end must not be signed."""


@asynccontextmanager
async def open_trail(
    location: str | Path | None,
    key: GatewayKey,
    settings: Audit,
    *,
    keep: float = Keep().audit,
    about: JsonObject | None = None,
    on_failed: Callable[[], None] = lambda: None,
) -> AsyncGenerator[AuditWriter, None]:
    """Open an audit trail; sign it, sum its counts and purge it until the end of the block.

    Args:
        location: The location of the database, as in `ConversationStore.open`.
        key: The key that signs the trail.
        settings: The settings of the trail and of its copy.
        keep: The age in seconds at which a record expires.
        about: Members for the record "started", such as the program's version.
        on_failed: Called once if a sync fails. After that, no record can be written until the
            process restarts, so the function should exit the process.

    Raises:
        StoreError: The database cannot be opened or written to.
    """
    async with AuditWriter.open(
        location, key=key, settings=settings, on_failed=on_failed
    ) as writer:
        upkeep = AuditUpkeep(writer, key, keep, copy_folder(settings, location))
        await writer.append(AuditRecord("started", body=msgspec.json.encode(about or {})))
        await upkeep.close_dead_writers()
        try:
            async with beside(upkeep.run()):
                yield writer
        finally:
            with suppress(AuditUnavailable):
                writer.append_soon(AuditRecord("stopped"))


class AuditUpkeep:
    """Background work on an audit trail, which calls do not wait for.

    Args:
        writer: The writer that records what the upkeep does.
        key: The key that signs the trail.
        keep: The age in seconds at which a record expires.
        copy: The folder of the copy of the trail; None if it has no copy.
    """

    def __init__(
        self, writer: AuditWriter, key: GatewayKey, keep: float, copy: Path | None = None
    ) -> None:
        self._writer = writer
        self._tables = writer.tables
        self._key = key
        self._keep = int(keep * 1_000_000)
        self._copy = copy
        self._silent: Counter[str] = Counter()  # checks in a row without the writer's lock
        self._damaged: set[str] = set()  # dead writers whose chains cannot be closed

    async def run(self) -> None:
        """Sign the trail, sum its counts and purge it, until cancelled."""
        loop = asyncio.get_running_loop()
        purge_at, is_first = loop.time(), True
        while True:
            if loop.time() >= purge_at:
                purge_at += PURGE_EVERY
                purging = self.purge(now_micros())
                await _try(purging, "old audit records are not deleted", logging.WARNING)
            for _ in range(self._tables.LOOKS):
                await asyncio.sleep(SIGN_EVERY / self._tables.LOOKS)
                await _try(self._look(), "chains of killed writers are not closed")
            self._writer.sign_soon()
            added = _try(rollups.add_up(self._tables, is_first=is_first), "calls are not counted")
            is_first = not await added and is_first

    async def _look(self) -> None:
        """Show that this writer is alive, and close the chains of writers that are dead."""
        await self._writer.renew()
        await self.close_dead_writers(after=self._tables.LOOKS_UNTIL_DEAD)

    async def close_dead_writers(self, *, after: int = 1) -> None:
        """Close the chains of killed writers, and record their unfinished calls.

        A chain that was tampered with stays open, so that `interlock audit verify` reports it.

        Args:
            after: The number of consecutive calls that must find a writer without its lock.

        Raises:
            AuditUnavailable: The database does not answer.
        """
        open_chains = await self._tables.fetch(_DEAD, self._writer.id)
        silent = Counter[str]()
        for head in starmap(StoredHead, open_chains):
            writer = head.writer
            if writer in self._damaged or not await self._tables.take_over(writer):
                continue
            try:
                silent[writer] = self._silent[writer] + 1
                if silent[writer] >= after:
                    await self._close_unless_damaged(head)
            finally:
                await self._tables.forget(writer)
        self._silent = silent

    async def _close_unless_damaged(self, head: StoredHead) -> None:
        try:
            end, still_open = await self._end_of(head)
        except _Damaged:
            await self._report(head, head.base_seq)
            return
        body = msgspec.json.encode({"writer": head.writer})
        written = [
            self._writer.queue(
                AuditRecord(
                    *("unfinished", call, user, key, server, tool),
                    status="unfinished",
                    body=body,
                    tenant=tenant,
                )
            )
            for _, _, tenant, _, call, user, key, server, tool, *_ in still_open
            if not await self._tables.fetch(_IS_CLOSED, call)
        ]
        await asyncio.gather(*written)
        at = now_micros()

        def close(now: StoredHead | None) -> StoredHead | None:
            if now != head:  # another gateway has closed the chain
                return now
            seq, hash = end
            return replace(head, ended=at, seq=seq, hash=hash, signed_at=at).signed(self._key)

        await change_head(self._tables, self._key, head.writer, close)

    async def _end_of(self, head: StoredHead) -> tuple[Head, list[Row]]:
        """Return the end of a dead writer's chain, and the intents of its calls without an end.

        The gateway will sign what it finds here. So all records from the oldest open call on are
        checked.

        Raises:
            _Damaged: The head or a record was changed, or a record is missing.
        """
        if head.invalid_columns() or head.problem(self._key):
            raise _Damaged
        hashes = ChainHash(self._key.of(head.writer))
        end = Head(head.base_seq, head.base_hash or FIRST_HASH)
        seq = (head.open_seq or 1) - 1
        if seq > head.base_seq:  # the hash of the record `seq` covers this one
            rows = await self._tables.fetch(_RECORDS, head.writer, seq, 1)
            end = Head(seq, rows[0][-1] if rows else b"")
        still_open: dict[str, Row] = {}
        while rows := await self._tables.fetch(_RECORDS, head.writer, end.seq + 1, CHECKED_AT_ONCE):
            for row in rows:
                if not hashes.follows(*end, row) or (row[0] == head.seq and row[-1] != head.hash):
                    raise _Damaged
                end = Head(row[0], row[-1])
                _, _, _, kind, call, *_ = row
                if kind == "intent":
                    still_open[call] = row
                elif kind in _ENDS:
                    still_open.pop(call, None)
        if end.seq < head.seq:
            raise _Damaged
        return end, [*still_open.values()]

    async def _report(self, head: StoredHead, base_seq: int) -> None:
        """Report a damaged chain once, unless another gateway has just closed or purged it."""
        now = await self._tables.fetch(_STATE, head.writer)
        if now == [(base_seq, head.ended)] and head.writer not in self._damaged:
            self._damaged.add(head.writer)
            text = "records of writer %s were changed: see `interlock audit verify`"
            _log.error(text, as_text(head.writer))

    async def purge(self, now: int) -> int:
        """Delete the days of the trail that have expired; return the number of deleted records.

        Raises:
            AuditUnavailable: The database does not answer; the next call continues the work.
        """
        before = (now - self._keep) // DAY * DAY
        await rollups.purge(self._tables, before // MINUTE)
        if (folder := self._copy) is not None:
            await aio.in_thread(lambda: copies.purge(folder, before))
        await AuditReader(self._tables).complete(self._key)
        ends: dict[str, int] = {}
        total = 0
        for head in starmap(StoredHead, await self._tables.fetch(_HEADS, before)):
            seq, count = await self._purge_chain(head, before)
            total += count
            if count:
                ends[head.writer] = seq
        if total:
            for (writer,) in await self._tables.fetch(_PURGED_HEADS, before):
                await change_head(self._tables, self._key, writer, lambda _: None)
            body = {"before": rfc3339(before), "records": total, "ends": ends}
            await self._writer.append(AuditRecord("checkpoint", body=msgspec.json.encode(body)))
        return total

    async def _purge_chain(self, head: StoredHead, before: int) -> tuple[int, int]:
        """Return the number of the last deleted record, and how many records were deleted.

        A record that was changed is not deleted, and neither are those after it: their times may
        be wrong, and `interlock audit verify` must find them.
        """
        if head.invalid_columns() or head.problem(self._key):
            await self._report(head, head.base_seq)
            return 0, 0
        writer, hashes = head.writer, ChainHash(self._key.of(head.writer))
        end, total = Head(head.base_seq, head.base_hash or FIRST_HASH), 0
        while True:
            base, count = end, 0
            for row in await self._tables.fetch(_RECORDS, writer, base.seq + 1, PURGED_AT_ONCE):
                is_genuine = hashes.follows(*end, row)
                if not is_genuine:
                    await self._report(head, base.seq)
                if not is_genuine or row[1] >= before:
                    break
                end, count = Head(row[0], row[-1]), count + 1
            if not count:
                return end.seq, total
            await self._delete(writer, base.seq, end)
            total += count
            await asyncio.sleep(PURGE_PAUSE)

    async def _delete(self, writer: str, base_seq: int, end: Head) -> None:
        """Delete a chain's records from `base_seq` up to `end`, and state this in its head."""

        def rebase(head: StoredHead | None) -> StoredHead | None:
            if head is None or head.base_seq != base_seq:  # another gateway purges as well
                return head
            return head.purged(self._key, *end)

        delete = (_DELETE, [(writer, end.seq)])
        await change_head(self._tables, self._key, writer, rebase, delete)


async def _try(work: Awaitable[object], failed: str, level: int = logging.INFO) -> bool:
    """Do a piece of work; if it fails, log that, and return False."""
    try:
        await work
    except AuditUnavailable as error:
        _log.log(level, "%s yet: %s", failed, error)
    except Exception:
        _log.exception(failed)
    else:
        return True
    return False
