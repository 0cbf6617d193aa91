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
from itertools import takewhile
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
from interlock.store.audit.heads import StoredHead, change_head
from interlock.store.audit.writer import LAST, SIGN_EVERY, START, AuditRecord, AuditWriter, Head
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

DAY = 86_400 * 1_000_000  # microseconds
MINUTE = 60 * 1_000_000
PURGE_EVERY = 3_600.0  # seconds between two purges
PURGED_AT_ONCE = 200  # records that are deleted in one transaction
PURGE_PAUSE = 0.05  # seconds between two transactions, so that calls can write their records

_DEAD = (
    "SELECT writer, base_seq, COALESCE(open_seq, 0) FROM audit_heads"
    " WHERE ended IS NULL AND writer <> ?"
)
_UNFINISHED = (
    'SELECT tenant, call, "user", key, server, tool FROM audit AS intent'
    " WHERE writer = ? AND seq >= ? AND kind = 'intent' AND NOT EXISTS (SELECT 1 FROM audit"
    " WHERE call = intent.call AND kind IN ('outcome', 'refused', 'unfinished'))"
)
_HEADS = "SELECT writer, base_seq FROM audit_heads WHERE started < ?"
_OLDEST = "SELECT seq, at, hash FROM audit WHERE writer = ? AND seq > ? ORDER BY seq LIMIT ?"
_DELETE = "DELETE FROM audit WHERE writer = ? AND seq <= ?"
_PURGED_HEADS = "SELECT writer FROM audit_heads WHERE base_seq > 0 AND base_seq = seq AND ended < ?"

_log = logging.getLogger("interlock.audit")


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
        for writer, base_seq, open_seq in open_chains:
            if writer in self._damaged or not await self._tables.take_over(writer):
                continue
            try:
                silent[writer] = self._silent[writer] + 1
                if silent[writer] >= after:
                    await self._close_unless_damaged(writer, base_seq, open_seq)
            finally:
                await self._tables.forget(writer)
        self._silent = silent

    async def _close_unless_damaged(self, writer: str, base_seq: object, open_seq: object) -> None:
        ends = await self._tables.fetch(LAST, writer)
        end = Head(*ends[0]) if ends else START
        if (
            isinstance(base_seq, int)
            and isinstance(open_seq, int)
            and isinstance(end.seq, int)
            and isinstance(end.hash, bytes)
        ):
            await self._close_dead(writer, max(base_seq, open_seq), end)
        else:
            self._damaged.add(writer)
            text = "records of writer %s were changed: see `interlock audit verify`"
            _log.error(text, writer)

    async def _close_dead(self, writer: str, since: int, end: Head) -> None:
        body = msgspec.json.encode({"writer": writer})
        written = [
            self._writer.queue(
                AuditRecord(
                    *("unfinished", call, user, key, server, tool),
                    status="unfinished",
                    body=body,
                    tenant=tenant,
                )
            )
            for tenant, call, user, key, server, tool in await self._tables.fetch(
                _UNFINISHED, writer, since
            )
        ]
        await asyncio.gather(*written)
        at = now_micros()

        def close(head: StoredHead | None) -> StoredHead | None:
            if head is None or head.ended is not None:
                return head
            seq, hash = end
            return replace(head, ended=at, seq=seq, hash=hash, signed_at=at).signed(self._key)

        await change_head(self._tables, self._key, writer, close)

    async def purge(self, now: int) -> int:
        """Delete the days of the trail that have expired; return the number of deleted records.

        Raises:
            AuditUnavailable: The database does not answer; the next call continues the work.
        """
        before = (now - self._keep) // DAY * DAY
        await rollups.purge(self._tables, before // MINUTE)
        if (folder := self._copy) is not None:
            await aio.in_thread(lambda: copies.purge(folder, before))
        ends: dict[str, int] = {}
        total = 0
        for writer, base_seq in await self._tables.fetch(_HEADS, before):
            seq, count = await self._purge_chain(writer, base_seq, before)
            total += count
            if count:
                ends[writer] = seq
        if total:
            for (writer,) in await self._tables.fetch(_PURGED_HEADS, before):
                await change_head(self._tables, self._key, writer, lambda _: None)
            body = {"before": rfc3339(before), "records": total, "ends": ends}
            await self._writer.append(AuditRecord("checkpoint", body=msgspec.json.encode(body)))
        return total

    async def _purge_chain(self, writer: str, base_seq: int, before: int) -> tuple[int, int]:
        """Return the number of the last deleted record, and how many records were deleted."""
        total = 0
        while True:
            rows = await self._tables.fetch(_OLDEST, writer, base_seq, PURGED_AT_ONCE)
            old = list(takewhile(lambda row: row[1] < before, rows))
            if not old:
                return base_seq, total
            seq, _, hash = old[-1]
            await self._delete(writer, base_seq, Head(seq, hash))
            base_seq, total = seq, total + len(old)
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
