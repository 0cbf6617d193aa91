"""A writer of audit records, which are durable before their call starts and chained by hashes.

1. `AuditWriter.append` returns once the record is durable. If it raises, the call must not start.
2. Each writer has its own chain. A hash covers the previous hash, the record's number and all its
   columns, so that a changed, removed or moved record is detected. Writers share no state, so a
   chain cannot fork.
3. After a failed commit, the writer reads the end of its chain from the database, because the
   commit may have succeeded without an answer.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from time import monotonic, time_ns
from typing import NamedTuple

import msgspec
from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey
from interlock.auth.stored_key import TENANT
from interlock.errors import AuditFailed, AuditUnavailable
from interlock.store.audit.copies import AuditCopy
from interlock.store.audit.group_commit import GroupCommit
from interlock.store.audit.postgres_tables import AuditTables, PostgresAudit
from interlock.store.audit.rollups import Changes, RollupWriter, upsert
from interlock.store.audit.sqlite_tables import SqliteAudit
from interlock.store.database.claims import Claim, ClaimFailed, Row, Statement
from interlock.store.database.location import find, public_name
from interlock.store.database.preparation import prepare
from interlock.store.database.rows import storable
from interlock.text import base32
from interlock.text.timestamps import now_micros

FIRST_HASH = bytes(32)  # the previous hash of a chain's first record
SIGN_RECORDS = 1_000  # sign the end of a chain after this many records,
SIGN_EVERY = 60.0  # or after this many seconds

_INSERT = (
    'INSERT INTO audit (writer, seq, at, tenant, kind, call, "user", key, server, tool, status,'
    " reason, body, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_KIND, _CALL = 4, 5  # positions in a row
_INSERT_HEAD = "INSERT INTO audit_heads (writer, started, host, seq, hash) VALUES (?, ?, ?, 0, ?)"
LAST = "SELECT seq, hash FROM audit WHERE writer = ? ORDER BY seq DESC LIMIT 1"
# Clear `ended`: another process may have set it because it assumed that this writer was dead.
_SIGN = (
    "UPDATE audit_heads SET ended = NULL, seq = ?, hash = ?, signature = ?, signed_at = ?,"
    " open_seq = ? WHERE writer = ?"
)
_END = (
    "UPDATE audit_heads SET ended = ?, seq = ?, hash = ?, signature = ?, signed_at = ?"
    " WHERE writer = ?"
)

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
        key: The key that signs the end of the chain; None to leave the chain unsigned.
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
        key: GatewayKey | None = None,
        copy: AuditCopy | None = None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self.id = base32.encode(secrets.randbits(40), 8)  # short, because every record contains it
        self.rows = 0
        self.head = START
        self.is_failing = False
        self._tables = tables
        self._key = key
        self._copy = copy
        self._on_failed = on_failed
        self._head: Head | None = START  # None after a failed commit: the end is unknown
        self._signed = START
        self._signed_at = monotonic()
        self._open: dict[str, int] = {}  # the number of each intent without outcome, by call
        self._rollups = RollupWriter(self.id)
        self.group = GroupCommit(self._commit, name)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        location: str | Path | None = None,
        *,
        key: GatewayKey | None = None,
        copy: AuditCopy | None = None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[AuditWriter]:
        """Open a database like `ConversationStore.open`, and begin a new chain in it.

        Queued records are written at the end of the block.

        Raises:
            StoreError: The database cannot be opened or written to.
            MissingExtra: A package for this kind of database is not installed.
        """
        await prepare(location)
        tables, place = open_tables(location), find(location)
        name = f"the audit trail in {public_name(place) if isinstance(place, str) else place}"
        writer = cls(tables, name, key=key, copy=copy, on_failed=on_failed)
        try:
            row = (writer.id, now_micros(), socket.gethostname(), FIRST_HASH)
            await tables.hold(writer.id)
            await tables.write((_INSERT_HEAD, [row]))
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
        if self._key is not None and self._head not in (None, self._signed):
            with suppress(AuditUnavailable):
                self.group.add_soon(None)

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

    async def _commit(self, items: list[Added | None]) -> None:
        head, self._head = self._head, None
        try:
            if head is None:
                head = await self._last()
            before, rows = head, self._chained(head, items)
            if rows:
                head = Head(rows[-1][1], rows[-1][-1])
            signed = None
            if self._key is not None and (
                head.seq - self._signed.seq >= SIGN_RECORDS
                or monotonic() - self._signed_at >= SIGN_EVERY
                or None in items
            ):
                signed = self._sign(self._key, before, head)
            counts = self._rollups.plan(rows)
            statements: list[Statement | Claim] = []
            for item in items:
                if item is not None and item.claim is not None:
                    statements.append(item.claim)
            if rows:
                statements.append((_INSERT, rows))
            if counts:
                statements.append(upsert(counts))
            if signed is not None:
                statements.append((_SIGN, [signed]))
            if statements:
                await self._tables.write(*statements)
        except ClaimFailed:  # the records of failed claims must not become part of the chain
            self._head = before
            await self._commit([each for each in items if not _has_failed(each)])
            return
        except BaseException as error:
            self.is_failing = True
            if isinstance(error, AuditFailed):
                on_failed, self._on_failed = self._on_failed, lambda: None
                on_failed()
            raise
        self._head = self.head = head
        self.is_failing = False
        self.rows += len(rows)
        self._committed(rows, counts, signed)

    def _chained(self, head: Head, items: list[Added | None]) -> list[Row]:
        """Return the rows of these records, chained by hashes after `head`."""
        seq, hash = head
        rows = []
        for item in items:
            if item is None:  # a request of `sign_soon` to sign, which has no records
                continue
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
                columns = (at, *texts)
                seq += 1
                hash = sha256(  # the code of `chain_hash`, inlined for speed
                    hash + seq.to_bytes(8, "big") + _encode(columns) + body.encode()
                ).digest()
                rows.append((self.id, seq, *columns, body, hash))
        return rows

    def _committed(self, rows: list[Row], counts: Changes, signed: Row | None) -> None:
        if counts:
            self._rollups.keep(counts)
        unfinished = self._open
        for row in rows:
            kind = row[_KIND]
            if kind == "intent":
                unfinished[row[_CALL]] = row[1]
            elif kind == "outcome":
                unfinished.pop(row[_CALL], None)
        if signed is not None:
            seq, hash, signature, at = signed[:4]
            self._signed, self._signed_at = Head(seq, hash), monotonic()
        if self._copy is not None:
            self._copy.add_records(rows)
            if signed is not None:
                self._copy.add_checkpoint(self.id, seq, hash, signature, at)

    def _sign(self, key: GatewayKey, before: Head, head: Head) -> Row | None:
        if head == self._signed:
            return None
        at = now_micros()
        signature = key.sign(head_message(self.id, *head, at))
        open_seq = next(iter(self._open.values()), before.seq)
        return head.seq, head.hash, signature, at, open_seq, self.id

    async def _last(self) -> Head:
        found = await self._tables.fetch(LAST, self.id)
        return Head(*found[0]) if found else START

    async def _close(self) -> None:
        await self.group.close()
        try:
            if self._head is not None:
                at = now_micros()
                signature = None
                if self._key is not None:
                    signature = self._key.sign(head_message(self.id, *self._head, at))
                row = (at, *self._head, signature, at, self.id)
                await self._tables.write((_END, [row]))
                if self._copy is not None and signature is not None:
                    self._copy.add_checkpoint(self.id, *self._head, signature, at)
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


def head_message(writer: str, seq: int, hash: bytes, at: int) -> bytes:
    """Return the message that is signed for the end of a chain."""
    return msgspec.json.encode(("interlock head", writer, seq, hash.hex(), at))


def base_message(writer: str, seq: int, hash: bytes) -> bytes:
    """Return the message that is signed for the last purged record of a chain."""
    return msgspec.json.encode(("interlock base", writer, seq, hash.hex()))


def chain_hash(previous: bytes, seq: int, columns: tuple[object, ...], body: str) -> bytes:
    """Return a record's hash: SHA-256 of previous hash, number, columns as JSON, and body.

    Args:
        previous: The hash of the record before; `FIRST_HASH` for the first record of a chain.
        seq: The record's number, from 1, hashed as 8 bytes, big-endian.
        columns: The values of the columns from `at` to `reason`, in the table's order.
        body: The value of the column `body`.
    """
    return sha256(previous + seq.to_bytes(8, "big") + _encode(columns) + body.encode()).digest()


def _has_failed(item: Added | None) -> bool:
    return item is not None and item.claim is not None and item.claim.has_failed
