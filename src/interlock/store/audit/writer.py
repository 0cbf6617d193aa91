"""A writer of audit records, which are durable before their call starts and chained by hashes.

1. `AuditWriter.append` returns once the record is durable. If it raises, the call must not start.
2. Each writer has its own chain. A hash covers the previous hash, the record's number and all its
   columns, so that a changed, removed or moved record is detected. It is keyed, so that only a
   process with the gateway's key can add a record. Writers share no chain, so a chain cannot fork.
3. After a failed commit, the writer reads from the database whether the commit has succeeded
   without an answer.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic, time_ns
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock import aio
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.stored_key import TENANT
from interlock.config.gateway import Audit
from interlock.errors import AuditFailed, AuditUnavailable
from interlock.store.audit.copies import AuditCopy, copy_folder
from interlock.store.audit.group_commit import GroupCommit
from interlock.store.audit.heads import FIRST_HASH, ChainHash, StoredHead, change_head
from interlock.store.audit.names import OF_CALLS
from interlock.store.audit.postgres_tables import AuditTables, PostgresAudit
from interlock.store.audit.rollups import Changes, RollupWriter, upsert
from interlock.store.audit.sqlite_tables import SqliteAudit
from interlock.store.database.claims import Claim, ClaimFailed, Row, Statement
from interlock.store.database.location import find, public_name
from interlock.store.database.preparation import prepare
from interlock.store.database.rows import storable
from interlock.text import base32
from interlock.text.timestamps import now_micros

SIGN_RECORDS = 1_000  # sign the end of a chain after this many records,
SIGN_EVERY = 60.0  # or after this many seconds
PROVEN_FOR = 60.0  # seconds for which a write shows that the database can be written to

_INSERT = (
    'INSERT INTO audit (writer, seq, at, tenant, kind, call, "user", key, server, tool, status,'
    " reason, body, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_KIND, _CALL = 4, 5  # positions in a row
_OWNER = "SELECT fingerprint FROM gateway_key"
_OWN = "INSERT INTO gateway_key (id, fingerprint) VALUES (1, ?) ON CONFLICT DO NOTHING"
_IS_OWN = "UPDATE gateway_key SET fingerprint = fingerprint WHERE fingerprint = ?"
_ENDED = "SELECT ended FROM audit_heads WHERE writer = ?"
_LAST = "SELECT seq, hash FROM audit WHERE writer = ? AND seq > ? ORDER BY seq DESC LIMIT 1"

_encode = msgspec.json.Encoder().encode
logger = logging.getLogger(__name__)


class AuditRecord(Struct, frozen=True):
    """One step of a call. Fields that do not apply to a kind are empty."""

    kind: str  # the kind of step, such as "intent" or "outcome"
    call: str = ""
    user: str = ""
    key: str = ""
    server: str = ""
    tool: str = ""
    status: str = ""
    reason: str = ""
    body: bytes = b"{}"  # the members that have no column, as a JSON object
    tenant: str = TENANT


class Added(Struct, frozen=True):
    """Records to add in one transaction.

    Attributes:
        at: The time at which they were queued, in nanoseconds since 1970.
        records: The records, in order.
        claim: A claim that must succeed in the same transaction; None if there is none.
    """

    at: int
    records: tuple[AuditRecord, ...]
    claim: Claim | None = None


class Head(NamedTuple):
    """The end of a chain: the number and hash of its last record."""

    seq: int
    hash: bytes


START = Head(0, FIRST_HASH)


class AuditWriter:
    """A writer of audit records with its own hash chain. Concurrent calls share one disk sync.

    Args:
        tables: The audit tables to write to.
        name: The trail's name in error messages.
        key: The key of the records' hashes, which also signs the end of the chain.
        copy: A file that receives each record once it is durable; None for no copy.
        on_failed: Called once when records can no longer be written until the process restarts.

    Attributes:
        id: The id of the writer and of its chain.
        rows: The number of written records.
        head: The end of the chain, as committed.
        is_failing: Whether the last commit failed.
        group: The group commit that writes records from `queue` and `append_soon`.
    """

    def __init__(
        self,
        tables: AuditTables,
        name: str,
        *,
        key: GatewayKey,
        copy: AuditCopy | None = None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.id = base32.encode(secrets.randbits(40), 8)  # short, because every record contains it
        self.rows = 0
        self.head = START
        self.is_failing = False
        self._tables = tables
        self._key = key
        self._hash = ChainHash(key)
        self._copy = copy
        self._on_failed = on_failed
        self._head: Head | None = START  # None after a failed commit: the end is unknown
        self._signed = START
        self._signed_at = self._written_at = monotonic()
        self._signing: asyncio.Task[None] | None = None
        self._open: dict[str, int] = {}  # the number of each intent without outcome, by call
        self._rollups = RollupWriter(self.id)
        self.group = GroupCommit(self._commit, name)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        location: str | Path | None = None,
        *,
        key: GatewayKey,
        settings: Audit | None = None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[AuditWriter]:
        """Open a database like `ConversationStore.open`, and begin a new chain in it.

        Queued records are written at the end of the block.

        Args:
            location: The database.
            key: The key of the trail.
            settings: The settings of the copy of the trail; None for no copy.
            on_failed: See the class.

        Raises:
            ConfigError: The database belongs to another gateway key.
            StoreError: The database cannot be opened or written to.
            MissingExtra: A package for this kind of database is not installed.
        """
        await prepare(location)
        tables, place = open_tables(location), find(location)
        copy = None
        if settings is not None:
            has_records = bool(settings.copy)
            copy = AuditCopy(copy_folder(settings, location), key, has_records=has_records)
        name = f"the audit trail in {public_name(place) if isinstance(place, str) else place}"
        writer = cls(tables, name, key=key, copy=copy, on_failed=on_failed)
        try:
            await writer._check_owner(name)
            await tables.hold(writer.id)
            await writer._begin(name)
        except BaseException:
            await tables.close()
            raise
        try:
            yield writer
        finally:
            await writer._close()

    async def append(self, record: AuditRecord, claim: Claim | None = None) -> None:
        """Write a record; the record is durable when this returns.

        Args:
            record: The record to write.
            claim: A claim that must succeed in the same transaction. If it fails, it is marked as
                failed, and the record is not written.

        Raises:
            AuditUnavailable: The record did not become durable within a second, so its call must
                not be made. A later record may succeed.
            AuditFailed: No record can be written until the process restarts.
        """
        await self.append_all((record,), claim)

    async def append_all(self, records: Sequence[AuditRecord], claim: Claim | None = None) -> None:
        """Write several records and their claim in one transaction, like `append`."""
        await self.group.add(Added(time_ns(), tuple(records), claim))

    def queue(self, record: AuditRecord, claim: Claim | None = None) -> asyncio.Future[None]:
        """Queue a record; return a future that completes or fails like `append`.

        Raises:
            AuditUnavailable: The database does not answer, or the writer was closed.
        """
        return self.group.queue(Added(time_ns(), (record,), claim))

    def append_soon(self, record: AuditRecord) -> None:
        """Queue a record, such as an outcome; return before the record is durable.

        While the database fails, up to 10,000 such records are kept, and written once it recovers.

        Raises:
            AuditUnavailable: The writer was closed.
        """
        self.group.add_soon(Added(time_ns(), (record,)))

    def sign_soon(self) -> None:
        """Sign the end of the chain soon, unless it was signed a moment ago."""
        if self._signing is None and self.head != self._signed:
            self._signing = aio.start_detached(self._sign())

    async def signed(self) -> None:
        """Wait until no signature is being written."""
        if self._signing is not None:
            await self._signing

    @property
    def is_proven(self) -> bool:
        """Whether the last write succeeded, less than a minute ago, and none takes too long."""
        is_recent = monotonic() - self._written_at < PROVEN_FOR
        return is_recent and not self.is_failing and not self.group.is_stalled

    async def prove(self) -> None:
        """Write the records of failed commits; if none are left, sign the end of the chain again.

        Raises:
            AuditUnavailable: The database cannot be written to.
            AuditFailed: No record can be written until the process restarts.
        """
        await self.group.add(Added(time_ns(), ()))
        if not self.is_proven:
            try:
                await self._change_head(ended=None)
            except AuditUnavailable as error:
                self._note_failure(error)
                raise

    async def renew(self) -> None:
        """Show other gateways that this writer is alive; reopen its chain if one of them closed it.

        Raises:
            AuditUnavailable: The database cannot be used.
        """
        try:
            await self._tables.renew()
            ends = await self._tables.fetch(_ENDED, self.id)
        except AuditUnavailable as error:
            self._note_failure(error)  # the next commit must show that it is alive
            raise
        if ends and ends[0][0] is not None:
            await self._change_head(ended=None)

    @property
    def tables(self) -> AuditTables:
        return self._tables

    @property
    def dropped(self) -> int:
        """The number of records from `append_soon` that could not be written."""
        return self.group.dropped

    @property
    def lag(self) -> float:
        """The seconds for which the oldest queued record has been waiting."""
        return self.group.lag

    # Committing

    async def _commit(self, items: list[Added]) -> None:
        head, self._head = self._head, None
        try:
            if head is None:
                head = await self._last()
            before, rows = head, self._chained(head, items)
            if rows:
                head = Head(rows[-1][1], rows[-1][-1])
            counts = self._rollups.plan(rows)
            statements: list[Statement | Claim] = []
            for item in items:
                if item.claim is not None:
                    statements.append(item.claim)
            if rows:
                statements.append((_INSERT, rows))
            if counts:
                statements.append(upsert(counts))
            if statements:
                await self._tables.write(*statements)
        except ClaimFailed:  # the records of failed claims must not become part of the chain
            self._head = before
            await self._commit([each for each in items if not _has_failed(each)])
            return
        except BaseException as error:
            self._note_failure(error)
            if isinstance(error, AuditFailed):
                self._fail()
            raise
        has_recovered, self._head, self.head = self.is_failing, head, head
        if statements:
            self.is_failing, self._written_at = False, monotonic()
        self.rows += len(rows)
        self._committed(rows, counts)
        if has_recovered:
            logger.warning("audit records are written again")
            self.sign_soon()  # another gateway may have closed the chain in the meantime

    def _note_failure(self, error: BaseException) -> None:
        if not self.is_failing and isinstance(error, AuditUnavailable):
            logger.warning("audit records cannot be written: %s", error)
        self.is_failing = True

    def _chained(self, head: Head, items: list[Added]) -> list[Row]:
        """Return the rows of these records, chained by hashes after `head`."""
        seq, hash = head
        inner, outer, names = self._hash.inner, self._hash.outer, self._hash.pseudonyms
        rows = []
        for item in items:
            # Times within a transaction are a microsecond apart, so that sorting keeps the order.
            for at, record in enumerate(item.records, item.at // 1_000):
                # Inlined: a function call for each record would take longer than the rest.
                body = record.body.decode(errors="replace")
                texts = (
                    "" if record.tenant == TENANT else record.tenant,
                    record.kind,
                    record.call,
                    record.user,
                    record.key,
                    record.server,
                    record.tool,
                    record.status,
                    record.reason,
                )
                together = body + "".join(texts)
                if not together.isascii() or "\0" in together:  # such as an invented tool name
                    body, *rest = map(storable, (body, *texts))
                    texts = tuple(rest)  # type: ignore[assignment] # same length
                tenant, kind, call, user, *rest = texts
                hashed = body if kind in OF_CALLS else names.covered_body(kind, body)
                columns = (at, tenant, kind, call, names[user], *rest)
                seq += 1
                # The code of `chain_hash`, inlined for speed.
                first, second = inner.copy(), outer.copy()
                first.update(hash + seq.to_bytes(8, "big") + _encode(columns) + hashed.encode())
                second.update(first.digest())
                hash = second.digest()
                rows.append((self.id, seq, at, *texts, body, hash))
        return rows

    def _committed(self, rows: list[Row], counts: Changes) -> None:
        if counts:
            self._rollups.keep(counts)
        unfinished = self._open
        for row in rows:
            kind = row[_KIND]
            if kind == "intent":
                unfinished[row[_CALL]] = row[1]
            elif kind == "outcome":
                unfinished.pop(row[_CALL], None)
        if self._copy is not None and self._copy.has_records:
            self._copy.add_records(rows)
        is_due = monotonic() - self._signed_at >= SIGN_EVERY
        if is_due or self.head.seq - self._signed.seq >= SIGN_RECORDS:
            self.sign_soon()

    # Signing

    async def _sign(self) -> None:
        try:
            await self._change_head(ended=None)
        except AuditFailed:
            self._fail()
        except AuditUnavailable as error:  # the next commit or minute tries again
            logger.info("the end of the audit trail is not signed yet: %s", error)
        finally:
            self._signing = None

    async def _change_head(self, *, ended: int | None) -> None:
        """Sign the end of the chain, as committed.

        Clear `ended` while the writer runs: another process may have set it because it assumed that
        this writer was dead.
        """
        end, at = self.head, now_micros()
        open_seq = next(iter(self._open.values()), end.seq)

        def change(head: StoredHead | None) -> StoredHead | None:
            if head is None:  # it was removed, which `verify` reports
                return None
            seq, hash = end
            return replace(
                head, ended=ended, seq=seq, hash=hash, signed_at=at, open_seq=open_seq
            ).signed(self._key)

        await change_head(self._tables, self._key, self.id, change)
        self._signed, self._signed_at = end, monotonic()
        if self.is_failing:
            logger.warning("audit records are written again")
        self.is_failing, self._written_at = False, monotonic()
        if self._copy is not None:
            self._copy.add_head(self.id, *end, at)

    async def _check_owner(self, name: str) -> None:
        if not (found := await self._tables.fetch(_OWNER)):
            await self._tables.write((_OWN, [(self._key.fingerprint,)]))
            found = await self._tables.fetch(_OWNER)
        self._key.check_owner(found[0][0], name)

    async def _begin(self, name: str) -> None:
        """Insert the head of the chain, unless the database's key is replaced at this moment."""
        first = self._first_head()
        is_own = Claim(_IS_OWN, (self._key.fingerprint,))
        try:
            await change_head(self._tables, self._key, self.id, lambda _: first, claim=is_own)
        except ClaimFailed:
            await self._check_owner(name)
            raise
        if self._copy is not None:
            self._copy.add_head(self.id, *START, first.started)

    def _first_head(self) -> StoredHead:
        at, host = now_micros(), storable(socket.gethostname())
        head = StoredHead(self.id, at, None, host, *START, None, at, None, 0, None, None)
        return head.signed(self._key)

    def _fail(self) -> None:
        on_failed, self._on_failed = self._on_failed, lambda: None
        on_failed()

    async def _last(self) -> Head:
        """Return the end of the chain in the database, which may be after `head`.

        It is never before `head`: records that were deleted since must leave a gap.
        """
        found = await self._tables.fetch(_LAST, self.id, self.head.seq)
        return Head(*found[0]) if found else self.head

    async def _close(self) -> None:
        await self.group.close()
        try:
            await self.signed()
            if self._head is not None:
                await self._change_head(ended=now_micros())
        except AuditUnavailable as error:
            logger.warning("the end of the audit trail was not recorded: %s", error)
        finally:
            if self._copy is not None:
                await self._copy.close()
            await self._tables.close()


def open_tables(location: str | Path | None) -> AuditTables:
    """Return the audit tables of a database that has this program's version."""
    found = find(location)
    return SqliteAudit(found) if isinstance(found, Path) else PostgresAudit(found)


def _has_failed(item: Added) -> bool:
    return item.claim is not None and item.claim.has_failed
