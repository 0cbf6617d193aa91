"""Audit records: on the disk before the call they announce, and chained by hashes.

1. `AuditWriter.append` returns when the record is durable. If it raises, the call must not be made.
2. Each writer has its own chain. A hash covers the previous hash, the number and all columns of a
   record, so that a changed, removed or moved record is found. Writers share no state, so a chain
   cannot fork.
3. After a failed commit, the writer reads the end of its chain from the database, because the
   commit may have succeeded without an answer.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from interlock.errors import AuditUnavailable
from interlock.store.audit_postgres import PostgresAudit
from interlock.store.audit_sqlite import SqliteAudit
from interlock.store.database import open_database
from interlock.store.group_commit import GroupCommit
from interlock.store.location import find
from interlock.store.rows import storable

FIRST_HASH = bytes(32)  # what precedes the first record of a chain

logger = logging.getLogger(__name__)


_Columns = tuple[tuple[object, ...], str]  # from `at` to `reason`, and `body`


class AuditRecord(Struct, frozen=True):
    """One step of a call. Fields that do not apply are empty."""

    kind: str  # such as "intent" or "outcome"
    call: str = ""
    user: str = ""
    key: str = ""
    server: str = ""
    tool: str = ""
    status: str = ""
    reason: str = ""
    body: bytes = b"{}"  # further members, as a JSON object
    tenant: str = "default"


class Head(NamedTuple):
    """The end of a chain: the number and hash of its last record."""

    seq: int
    hash: bytes


class AuditWriter:
    """A writer of audit records with a hash chain of its own. Many calls share one sync."""

    def __init__(self, tables: SqliteAudit | PostgresAudit, name: str) -> None:
        self.id = secrets.token_hex(6)
        self._tables = tables
        self._head: Head | None = Head(0, FIRST_HASH)  # None: unknown after a failed commit
        self._group = GroupCommit(self._commit, name)

    @classmethod
    @asynccontextmanager
    async def open(cls, location: str | Path | None = None) -> AsyncIterator[AuditWriter]:
        """Open a database as `ConversationStore.open` does, and begin a chain in it.

        Queued records are written at the end.

        Raises:
            StoreError: The database cannot be used or written.
            MissingExtra: A package for this kind of database is not installed.
        """
        database = await open_database(location)
        await database.close()
        found = find(location)
        tables = SqliteAudit(found) if isinstance(found, Path) else PostgresAudit(found)
        writer = cls(tables, f"the audit trail in {database.location}")
        try:
            await tables.insert_head(writer.id, _now(), socket.gethostname(), FIRST_HASH)
        except BaseException:
            await tables.close()
            raise
        try:
            yield writer
        finally:
            await writer._close()

    async def append(self, record: AuditRecord) -> None:
        """Write a record; it is durable when this returns.

        Raises:
            AuditUnavailable: It could not be made durable within a second, so the call it
                announces must not be made. A later record may succeed.
            AuditFailed: No record can be written until this process is restarted.
        """
        await self._group.add(_columns(record))

    def queue(self, record: AuditRecord) -> asyncio.Future[None]:
        """Queue a record; return a future that is done when it is durable, or fails as `append`.

        Raises:
            AuditUnavailable: The database does not answer, or the writer has been closed.
        """
        return self._group.queue(_columns(record))

    def append_soon(self, record: AuditRecord) -> None:
        """Queue a record, such as an outcome, without waiting until it is durable.

        While the database fails, up to 10,000 such records are kept and written when it recovers.

        Raises:
            AuditUnavailable: The writer has been closed.
        """
        self._group.add_soon(_columns(record))

    @property
    def dropped(self) -> int:
        """How many records of `append_soon` are lost, as too many failed or the disk lost them."""
        return self._group.dropped

    async def _commit(self, records: list[_Columns]) -> None:
        head, self._head = self._head, None
        if head is None:
            last = await self._tables.last(self.id)
            head = Head(*last) if last else Head(0, FIRST_HASH)
        rows = []
        for columns, body in records:
            seq = head.seq + 1
            head = Head(seq, chain_hash(head.hash, seq, columns, body))
            rows.append((self.id, seq, *columns, body, head.hash))
        await self._tables.insert(rows)
        self._head = head

    async def _close(self) -> None:
        await self._group.close()
        try:
            if self._head is not None:
                await self._tables.end(self.id, _now(), *self._head)
        except AuditUnavailable as error:
            logger.warning("the end of the audit trail was not recorded: %s", error)
        finally:
            await self._tables.close()


def chain_hash(previous: bytes, seq: int, columns: tuple[object, ...], body: str) -> bytes:
    """Return a record's hash: SHA-256 of previous hash, number, columns as JSON, and body.

    Args:
        previous: The hash of the record before; `FIRST_HASH` for the first.
        seq: The record's number, from 1, hashed as 8 bytes, big-endian.
        columns: The values from `at` to `reason`, in the order of the table.
        body: The column `body`.
    """
    encoded = msgspec.json.encode(columns)
    return sha256(previous + seq.to_bytes(8, "big") + encoded + body.encode()).digest()


def _columns(record: AuditRecord) -> _Columns:
    body = record.body.decode()
    texts: tuple[str, ...] = (
        record.tenant,
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
    if storable(together) != together:  # a name that a caller made up
        body, *rest = map(storable, (body, *texts))
        texts = tuple(rest)
    return (_now(), *texts), body


def _now() -> int:
    return time.time_ns() // 1000
