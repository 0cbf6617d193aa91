"""Reading an audit trail: calls by filters, the records of a call, export and verification."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import AuditUnavailable, StoreError
from interlock.store.audit_postgres import AuditTables, PostgresAudit
from interlock.store.audit_records import SELECT, as_object
from interlock.store.audit_sqlite import SqliteAudit
from interlock.store.audit_verification import Mark, StoredHead, Verification
from interlock.store.claims import Row
from interlock.store.database import open_database
from interlock.store.location import find
from interlock.store.rollup_series import MAX_BUCKETS, By, Series, read_series
from interlock.types import JsonObject

TIMEOUT = 60.0  # seconds for an answer of PostgreSQL
BATCH = 20_000  # records that are verified at once
EXPORTED_AT_ONCE = 1_000

_HEADS = (
    "SELECT writer, ended, seq, hash, signature, signed_at, base_seq, base_hash, base_signature"
    " FROM audit_heads ORDER BY writer"
)
_CHAIN = f"SELECT {SELECT} FROM audit WHERE writer = ? AND seq > ? ORDER BY seq LIMIT ?"  # noqa: S608
_RECORDS = f"SELECT {SELECT} FROM audit WHERE call = ? ORDER BY at, writer, seq"  # noqa: S608
_NEXT_WRITER = "SELECT min(writer) FROM audit WHERE writer > ?"
_OWNER = 'SELECT "user" FROM keys WHERE id = ?'
_OPEN_WRITERS = "SELECT writer, COALESCE(open_seq, 0) FROM audit_heads WHERE ended IS NULL"
_OPEN_CALLS = (
    f"SELECT {SELECT} FROM audit WHERE writer = ? AND seq >= ? AND kind = 'intent'"  # noqa: S608
    " AND NOT EXISTS (SELECT 1 FROM audit AS later WHERE later.call = audit.call"
    " AND later.kind IN ('outcome', 'refused', 'unfinished'))"
)
_NEWEST = "ORDER BY at DESC, writer DESC, seq DESC"
_BEFORE = "at <= ? AND (at, writer, seq) < (?, ?, ?)"
_AT, _CALL = 2, 5  # positions in a row
_ENDS = ("ok", "tool_error", "error", "timeout", "cancelled", "unfinished")


class CallFilter(Struct, frozen=True, kw_only=True):
    """Which calls to list. Times are microseconds since 1970."""

    user: str = ""
    key: str = ""
    tool: str = ""
    status: str = ""
    reason: str = ""
    since: int | None = None
    until: int | None = None
    after: str = ""  # where a page of `AuditReader.page` ended


class AuditReader:
    """Reads an audit trail, whether a gateway is writing it or not."""

    def __init__(self, tables: AuditTables) -> None:
        self._tables = tables

    @classmethod
    @asynccontextmanager
    async def open(cls, location: str | Path | None = None) -> AsyncGenerator[AuditReader, None]:
        """Open a database as `ConversationStore.open` does.

        Raises:
            StoreError: The database cannot be used.
        """
        database = await open_database(location)
        await database.close()
        found = find(location)
        tables = (
            SqliteAudit(found) if isinstance(found, Path) else PostgresAudit(found, timeout=TIMEOUT)
        )
        async with cls.at(tables) as reader:
            yield reader

    @classmethod
    @asynccontextmanager
    async def at(cls, tables: AuditTables) -> AsyncGenerator[AuditReader, None]:
        """Read tables, and close them at the end.

        Raises:
            StoreError: The database cannot be used.
        """
        try:
            yield cls(tables)
        except AuditUnavailable as error:
            raise StoreError(str(error)) from error
        finally:
            await tables.close()

    async def calls(self, wanted: CallFilter, *, limit: int = 50) -> list[JsonObject]:
        """Return the newest calls, refusals included, newest first."""
        return (await self.page(wanted, limit=limit))[0]

    async def page(self, wanted: CallFilter, *, limit: int) -> tuple[list[JsonObject], str]:
        """Return calls as `calls` does, and where the next page begins; "" if there is none.

        Raises:
            ValueError: `wanted.after` is not the end of a page.
        """
        if wanted.status in ("running", "unfinished"):
            rows = await self._open_calls(wanted, is_running=wanted.status == "running")
        else:
            rows = []
        if wanted.status != "running":
            rows += await self._telling(wanted, limit)
        rows.sort(key=lambda row: (row[_AT], row[0], row[1]), reverse=True)
        following = _cursor(rows[limit - 1]) if len(rows) >= limit else ""
        # A call whose intent was not durable in time has a refusal as well.
        of_calls = {row[_CALL] or row[:2]: row for row in rows[:limit]}
        return [await self._call(row) for row in of_calls.values()], following

    async def _telling(self, wanted: CallFilter, limit: int) -> list[Row]:
        """Return one record of each wanted call: the first one, or the one that is asked for."""
        where, parameters = await self._conditions(wanted)
        # The terms that repeat a condition make SQLite use the partial index for it.
        if wanted.status in _ENDS:
            where.append("status = ? AND kind IN ('outcome', 'unfinished')")
            where += ["status NOT IN ('', 'ok')"] * (wanted.status != "ok")
            parameters.append(wanted.status)
        elif wanted.status:
            where.append("kind = ? AND kind NOT IN ('intent', 'outcome')")
            parameters.append(wanted.status)
        elif wanted.reason:
            where.append("kind IN ('refused', 'asked', 'outcome')")
        else:
            where.append("kind IN ('intent', 'refused', 'asked')")
        sql = f"SELECT {SELECT} FROM audit WHERE {' AND '.join(where)} {_NEWEST} LIMIT ?"  # noqa: S608
        return await self._tables.fetch(sql, *parameters, limit)

    async def _open_calls(self, wanted: CallFilter, *, is_running: bool) -> list[Row]:
        """Return the intents without outcome of writers that run, or of those that were killed."""
        where, parameters = await self._conditions(wanted)
        found: list[Row] = []
        for writer, since in await self._tables.fetch(_OPEN_WRITERS):
            if await self._tables.is_alive(writer) == is_running:
                sql = " AND ".join([_OPEN_CALLS, *where])
                found += await self._tables.fetch(sql, writer, since, *parameters)
        return found

    async def _conditions(self, wanted: CallFilter) -> tuple[list[str], list[object]]:
        user = wanted.user
        if wanted.key and not user:  # there is an index of users, and a key has one
            owner = await self._tables.fetch(_OWNER, wanted.key)
            user = f"user:{owner[0][0]}" if owner else ""
        pairs = [
            ('"user" = ?', user),
            ("key = ?", wanted.key),
            ("tool = ?", wanted.tool),
            ("reason <> '' AND reason = ?", wanted.reason),
            ("at >= ?", wanted.since),
            ("at < ?", wanted.until),
        ]
        given = [(condition, value) for condition, value in pairs if value not in ("", None)]
        where = [condition for condition, _ in given]
        parameters: list[object] = [value for _, value in given]
        if wanted.after:
            at, writer, seq = _position(wanted.after)
            where.append(_BEFORE)  # its first term makes the index of times usable
            parameters += [at, at, writer, seq]
        return where, parameters

    async def records(self, call: str) -> list[JsonObject]:
        """Return all records of a call, oldest first."""
        return [as_object(row) for row in await self._tables.fetch(_RECORDS, call)]

    async def export(
        self, since: int | None = None, until: int | None = None
    ) -> AsyncIterator[list[JsonObject]]:
        """Yield all records of a time in pieces, by writer and number."""
        await self._tables.snapshot()
        async for writer in self._writers():
            seq = 0
            while rows := await self._tables.fetch(_CHAIN, writer, seq, EXPORTED_AT_ONCE):
                seq = rows[-1][1]
                yield [
                    as_object(row)
                    for row in rows
                    if (since is None or row[_AT] >= since) and (until is None or row[_AT] < until)
                ]

    async def series(
        self,
        by: By,
        since: int,
        until: int,
        *,
        buckets: int = MAX_BUCKETS,
        failures: bool = True,
    ) -> Series:
        """Return a chart of calls over time; see `rollup_series.read_series`."""
        return await read_series(self._tables, by, since, until, buckets=buckets, failures=failures)

    async def verify(
        self, key: GatewayKey | None, marks: dict[str, Mark] | None = None
    ) -> Verification:
        """Check all records.

        Args:
            key: Checks signatures; None to leave them unchecked.
            marks: What a copy of the trail states; see `audit_verification.read_copy`.
        """
        await self._tables.snapshot()
        heads = [StoredHead(*row) for row in await self._tables.fetch(_HEADS)]
        verification = Verification(heads, key, marks)
        async for writer in self._writers():
            last: Row | None = (writer, 0)
            while last is not None:
                last = await self._tables.scan(
                    _CHAIN, writer, last[1], BATCH, work=verification.check
                )
        verification.finish()
        return verification

    async def _writers(self) -> AsyncIterator[str]:
        writer = ""
        while True:
            ((following,),) = await self._tables.fetch(_NEXT_WRITER, writer)
            if following is None:
                return
            writer = following
            yield writer

    async def _call(self, telling: Row) -> JsonObject:
        """Return the line of the call that a record belongs to."""
        record = as_object(telling)
        if "call" not in record:  # a refusal of a request
            return _shown(record) | {"status": record["kind"]}
        by_kind = {each["kind"]: each for each in await self.records(record["call"])}
        begin = by_kind.get("intent") or by_kind.get("asked") or by_kind.get("refused") or record
        shown = _shown(begin)
        end = by_kind.get("outcome") or by_kind.get("unfinished")
        if end is not None:
            ended = {name: end[name] for name in ("status", "reason", "ms") if name in end}
            return shown | ended | {"bytes": end.get("bytes", 0)}
        for kind in ("refused", "asked"):  # refused after its intent: that was not durable in time
            if kind in by_kind:
                return shown | {"status": kind, "reason": by_kind[kind].get("reason", "")}
        is_alive = await self._tables.is_alive(begin["writer"])
        return shown | {"status": "running" if is_alive else "unfinished"}


def _cursor(row: Row) -> str:
    text = f"{row[_AT]} {row[0]} {row[1]}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _position(cursor: str) -> tuple[int, str, int]:
    padded = cursor + "=" * (-len(cursor) % 4)
    at, writer, seq = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
    return int(at), writer, int(seq)


def _shown(record: JsonObject) -> JsonObject:
    return {name: record[name] for name in _CALL_MEMBERS if name in record}


_CALL_MEMBERS = ("call", "at", "user", "key", "tool", "risk", "reason", "rule")


__all__ = ["AuditReader", "CallFilter"]
