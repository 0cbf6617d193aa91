"""A reader of an audit trail: list and filter calls, export records, and verify the chains."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.gateway_key import GatewayKey, RetiredKey
from interlock.errors import AuditUnavailable, StoreError
from interlock.store.audit.copy_reading import TrailCopy
from interlock.store.audit.following import TrailFollower
from interlock.store.audit.heads import SELECT_HEADS, SELECT_REGISTER, Register, StoredHead
from interlock.store.audit.postgres_tables import AuditTables, PostgresAudit
from interlock.store.audit.records import SELECTED, is_unicode, stored_object
from interlock.store.audit.rollup_series import MAX_BUCKETS, By, Series, read_series
from interlock.store.audit.sqlite_tables import SqliteAudit
from interlock.store.audit.verification import Verification
from interlock.store.database.claims import Row
from interlock.store.database.location import find
from interlock.store.database.preparation import prepare
from interlock.types import JsonObject

TIMEOUT = 60.0  # seconds to wait for PostgreSQL to answer a query
BATCH = 20_000  # records that are read and verified in one step
EXPORTED_AT_ONCE = 1_000
SCAN_SECONDS = 0.03  # a scan stops after this time, and its page has the calls found so far
FIRST_WINDOW = 500  # records in a scan's first window; later windows grow while reads are fast
PROBE = 1_000  # `_Scan.choose_index` compares the indexes by this many of their newest records

_HEADS = f"{SELECT_HEADS} ORDER BY writer"
_RECORDS = f"SELECT {', '.join(SELECTED)} FROM audit"  # noqa: S608
_CHAIN = f"SELECT {', '.join(SELECTED[1:])} FROM audit WHERE writer = ?"  # noqa: S608
_CHAIN_START = f"{_CHAIN} ORDER BY seq LIMIT ?"
_CHAIN_REST = f"{_CHAIN} AND seq > ? ORDER BY seq LIMIT ?"
_FIRST_WRITER = "SELECT min(writer) FROM audit"
_NEXT_WRITER = f"{_FIRST_WRITER} WHERE writer > ?"
_RETIRED = "SELECT fingerprint, sealed FROM retired_keys ORDER BY retired, fingerprint"
_OWNER = 'SELECT "user" FROM keys WHERE id = ?'
_USED_BY = "SELECT call, used_by_call FROM approvals WHERE used_by_call <> call AND call IN ({})"
_OPEN_WRITERS = "SELECT writer, COALESCE(open_seq, 0) FROM audit_heads WHERE ended IS NULL"
_FIRST_SINCE = "SELECT at FROM audit WHERE writer = ? AND seq >= ? ORDER BY seq LIMIT 1"
_IS_OPEN = (
    "kind = 'intent'"
    " AND NOT EXISTS (SELECT 1 FROM audit AS later WHERE later.call = audit.call"
    " AND later.kind IN ('outcome', 'refused', 'unfinished'))"
)
_IS_OK = (
    "kind = 'intent'"
    " AND EXISTS (SELECT 1 FROM audit AS later WHERE later.call = audit.call"
    " AND later.kind = 'outcome' AND later.status = 'ok')"
)
_INDEXED = "(status <> 'ok' OR reason <> '')"  # condition of the partial indexes by time and user
_NEWEST = "ORDER BY at DESC, writer DESC, seq DESC"
_LATEST = 2**63 - 1  # the sorting key of a damaged record, whose time is not a number
_AT, _CALL = 2, 5  # positions in a row
_ENDS = ("ok", "tool_error", "error", "timeout", "cancelled", "unfinished")


class CallFilter(Struct, frozen=True, kw_only=True):
    """A filter for the calls to list. All times are in microseconds since 1970."""

    user: str = ""
    key: str = ""
    tool: str = ""
    status: str = ""
    reason: str = ""
    since: int | None = None
    until: int | None = None
    after: str = ""  # the position after which a page begins: a cursor from `AuditReader.page`


class AuditReader:
    """A reader of an audit trail. A gateway may write the trail at the same time."""

    def __init__(self, tables: AuditTables) -> None:
        self._tables = tables
        self._queries = _Queries(tables)

    @classmethod
    @asynccontextmanager
    async def open(cls, location: str | Path | None = None) -> AsyncGenerator[AuditReader, None]:
        """Open a database as `ConversationStore.open` does.

        Raises:
            StoreError: The database cannot be used.
        """
        await prepare(location)
        found = find(location)
        tables = (
            SqliteAudit(found) if isinstance(found, Path) else PostgresAudit(found, timeout=TIMEOUT)
        )
        async with cls.at(tables) as reader:
            yield reader

    @classmethod
    @asynccontextmanager
    async def at(cls, tables: AuditTables) -> AsyncGenerator[AuditReader, None]:
        """Read from these tables, and close them at the end of the block.

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
        """Return the newest calls, newest first. Refused calls are included."""
        found, following = await self.page(wanted, limit=limit)
        while following and len(found) < limit:
            wanted = replace(wanted, after=following)
            more, following = await self.page(wanted, limit=limit - len(found))
            found += more
        return found

    async def page(self, wanted: CallFilter, *, limit: int) -> tuple[list[JsonObject], str]:
        """Return a page of calls, and the cursor of the next page, or "" after the last page.

        A page has fewer calls than `limit`, or none, if the scan ran for `SCAN_SECONDS`.

        Raises:
            ValueError: `wanted.after` is not a cursor that `page` has returned.
        """
        rows, ends = list[Row](), list[_Position]()
        if wanted.status != "running":
            told, end = await self._telling(wanted, limit)
            rows, ends = rows + told, ends + end
        if wanted.status == "refused":  # such as calls whose approval was denied
            told, end = await self._telling(replace(wanted, status="asked"), limit)
            rows, ends = rows + told, ends + end
        if wanted.status in ("running", "unfinished"):
            is_running = wanted.status == "running"
            still_open, end = await self._open_calls(wanted, limit, is_running=is_running)
            rows, ends = rows + still_open, ends + end
        # Rows older than the point where a scan stopped belong to the next page.
        rows = [row for row in rows if not ends or _position_of(row) >= max(ends)]
        rows.sort(key=_position_of, reverse=True)
        if len(rows) >= limit:
            ends = [_position_of(rows[limit - 1])]
        # A call may have two rows: an intent that was not durable in time, and a refusal.
        of_calls = {row[_CALL] or row[:2]: row for row in rows[:limit]}
        records = await self._records_of([row[_CALL] for row in of_calls.values() if row[_CALL]])
        asked = [call for call, found in records.items() if _last_of(found) == "decided"]
        later = await self._later(asked)
        calls = [
            await self._call(
                stored_object(row), records.get(row[_CALL], []), later.get(row[_CALL], ())
            )
            for row in of_calls.values()
        ]
        if wanted.status in ("asked", "refused"):  # the record "asked" does not tell what followed
            calls = [each for each in calls if each["status"] == wanted.status]
        return calls, _cursor(*max(ends)) if ends else ""

    async def _telling(self, wanted: CallFilter, limit: int) -> tuple[list[Row], list[_Position]]:
        """Return one record of each matching call: its first record, or the one that matches."""
        terms = await self._terms(wanted)
        if wanted.status == "ok" and not wanted.reason:  # the partial indexes omit these calls
            terms.append(_Term(_IS_OK))
        elif wanted.status in _ENDS:
            terms.append(_Term("status = ? AND kind IN ('outcome', 'unfinished')", wanted.status))
            if wanted.status != "ok":  # the partial index requires its own condition
                terms[-1].index = "status NOT IN ('', 'ok') AND status = ?"
        elif wanted.status:
            terms.append(_Term("kind = ?", wanted.status))
            terms[-1].index = "kind NOT IN ('intent', 'outcome') AND kind = ?"
        elif wanted.reason:
            terms.append(_Term("kind IN ('refused', 'asked', 'outcome')"))
        else:
            terms.append(_Term("kind IN ('intent', 'refused', 'asked')"))
        scan = _Scan(self._queries, terms, wanted)
        await scan.choose_index()
        return await scan.run(limit)

    async def _open_calls(
        self, wanted: CallFilter, limit: int, *, is_running: bool
    ) -> tuple[list[Row], list[_Position]]:
        """Return intents without an outcome, whose writers are running, or else were killed."""
        begins: dict[str, int] = {}  # the number of each writer's oldest open call
        for writer, seq in await self._queries.fetch(_OPEN_WRITERS):
            if await self._is_alive(writer) == is_running:
                for (at,) in await self._queries.fetch(_FIRST_SINCE, writer, seq):
                    begins[writer] = at if isinstance(at, int) else 0
        if not begins:
            return [], []
        marks = ", ".join("?" * len(begins))
        terms = await self._terms(wanted)
        terms.append(_Term(f"{_IS_OPEN} AND writer IN ({marks})", *begins))
        since = max(wanted.since or 0, min(begins.values()))
        scan = _Scan(self._queries, terms, replace(wanted, since=since))
        await scan.choose_index()
        return await scan.run(limit)

    async def _terms(self, wanted: CallFilter) -> list[_Term]:
        user = wanted.user
        if wanted.key and not user:  # a key belongs to one user, and only users have an index
            owner = await self._tables.fetch(_OWNER, wanted.key)
            user = f"user:{owner[0][0]}" if owner else ""
        terms = []
        if user:
            terms.append(_Term('"user" = ?', user, index=f'{_INDEXED} AND "user" = ?'))
        if wanted.key:
            terms.append(_Term("key = ?", wanted.key))
        if wanted.tool:
            terms.append(_Term("tool = ?", wanted.tool, index=f"{_INDEXED} AND tool = ?"))
        if wanted.reason:
            index = "reason <> '' AND reason = ?"
            terms.append(_Term("reason = ?", wanted.reason, index=index))
        return terms

    async def records(self, call: str) -> list[JsonObject]:
        """Return a call's records, then those of the call that used its approval, oldest first."""
        found = (await self._records_of([call])).get(call, [])
        return found + (await self._later([call])).get(call, [])

    async def last(self, kind: str) -> JsonObject | None:
        """Return the newest record of a kind that does not belong to a call, such as "config".

        Returns:
            The record; None if the trail has none, or the newest one is damaged.
        """
        # Repeat the condition of the partial index, so that the index is used.
        where = "WHERE kind NOT IN ('intent', 'outcome') AND kind = ?"
        rows = await self._queries.fetch(f"{_RECORDS} {where} ORDER BY at DESC LIMIT 1", kind)
        found = stored_object(rows[0]) if rows else None
        return None if found is None or "damaged" in found else found

    async def export(
        self, since: int | None = None, until: int | None = None
    ) -> AsyncIterator[list[JsonObject]]:
        """Yield all records of a period in batches, ordered by writer and number.

        Records whose time is damaged are always included.
        """
        await self._tables.snapshot()
        async for rows in self._pieces():
            yield [stored_object(row) for row in rows if _is_between(row[_AT], since, until)]

    def follow(
        self, since: int | None, on_failure: Callable[[str], None]
    ) -> AsyncIterator[Sequence[JsonObject]]:
        """Yield all records, then new ones as they are written; see `TrailFollower`."""
        return TrailFollower(self._queries, since, on_failure).records()

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

    async def complete(self, key: GatewayKey) -> GatewayKey:
        """Set the keys that a key has replaced, which are needed to verify; return the key.

        Raises:
            ConfigError: What is remembered of a key was changed, or belongs to another key.
        """
        rows = await self._queries.fetch(_RETIRED)
        key.retired = [RetiredKey.opened(sealed, name, key) for name, sealed in rows]
        return key

    async def verify(self, key: GatewayKey, copy: TrailCopy | None = None) -> Verification:
        """Verify all records of the trail.

        Args:
            key: The key of the database; see `complete`.
            copy: Copies that the database must agree with, from `read_copy`.
        """
        try:
            return await self._verify(key, copy)
        except AuditUnavailable:
            if not self._queries.read_any_text():
                raise
        return await self._verify(key, copy)

    async def _verify(self, key: GatewayKey, copy: TrailCopy | None) -> Verification:
        queries = self._queries
        await self._tables.snapshot()
        heads = [StoredHead(*row) for row in await queries.fetch(_HEADS)]
        registers = [Register(*row) for row in await queries.fetch(SELECT_REGISTER)]
        verification = Verification(heads, registers[0] if registers else None, key, copy)
        async for writer in self._writers():
            check = partial(verification.check, writer)
            last = await queries.scan(_CHAIN_START, writer, BATCH, work=check)
            while last is not None:
                last = await queries.scan(_CHAIN_REST, writer, last[0], BATCH, work=check)
        verification.finish()
        return verification

    async def _writers(self) -> AsyncIterator[str]:
        ((writer,),) = await self._queries.fetch(_FIRST_WRITER)
        while writer is not None:
            yield writer
            ((writer,),) = await self._queries.fetch(_NEXT_WRITER, writer)

    async def _pieces(self) -> AsyncIterator[list[Row]]:
        where, after = "", list[object]()
        while rows := await self._queries.fetch(
            f"{_RECORDS} {where} ORDER BY writer, seq LIMIT ?", *after, EXPORTED_AT_ONCE
        ):
            yield rows
            where, after = "WHERE (writer, seq) > (?, ?)", [*rows[-1][:2]]

    async def _is_alive(self, writer: str) -> bool:
        try:
            return await self._tables.is_alive(writer)
        except ValueError:  # the name is not a writer's id
            return False

    async def _records_of(self, calls: Sequence[str]) -> dict[str, list[JsonObject]]:
        if not calls:
            return {}
        marks = ", ".join("?" * len(calls))
        sql = f"{_RECORDS} WHERE call IN ({marks}) ORDER BY at, writer, seq"
        found: dict[str, list[JsonObject]] = {}
        for row in await self._queries.fetch(sql, *calls):
            found.setdefault(row[_CALL], []).append(stored_object(row))
        return found

    async def _later(self, calls: Sequence[str]) -> dict[str, list[JsonObject]]:
        """Return the records of the calls that used these calls' approvals, by the latter's ids."""
        if not calls:
            return {}
        sql = _USED_BY.format(", ".join("?" * len(calls)))
        used_by: dict[str, str] = dict(await self._queries.fetch(sql, *calls))
        records = await self._records_of([*used_by.values()])
        return {call: records.get(used, []) for call, used in used_by.items()}

    async def _call(
        self, record: JsonObject, records: Sequence[JsonObject], later: Sequence[JsonObject] = ()
    ) -> JsonObject:
        shown = _shown(record, [record, *records])
        if "call" not in record:  # the record is a refusal of a whole request
            return shown | {"status": record.get("kind", "")}
        by_kind = {each.get("kind", ""): each for each in records}
        begin = by_kind.get("intent") or by_kind.get("asked") or by_kind.get("refused") or record
        shown = _shown(begin, [record, *records])
        if later:
            by_kind = {each.get("kind", ""): each for each in later}
        end = by_kind.get("outcome") or by_kind.get("unfinished")
        if end is not None:
            ended = {name: end[name] for name in ("reason", "ms") if name in end}
            shown |= {"status": end.get("status", "")}
            return shown | ended | {"bytes": end.get("bytes", 0)}
        if (refused := by_kind.get("refused")) is not None:  # perhaps its intent was not durable
            return shown | {"status": "refused", "reason": refused.get("reason", "")}
        if (intent := by_kind.get("intent")) is not None:
            is_alive = await self._is_alive(intent.get("writer", ""))
            return shown | {"status": "running" if is_alive else "unfinished"}
        return shown | _VERDICTS.get(by_kind.get("decided", {}).get("verdict", ""), _ASKED)


class _Queries:
    """Queries of an audit trail, even if a SQLite file contains text that is not UTF-8.

    Invalid bytes are read as surrogates. Query parameters may contain surrogates as well.
    """

    def __init__(self, tables: AuditTables) -> None:
        self._tables = tables

    def read_any_text(self) -> bool:
        """Read invalid UTF-8 as surrogates from now on; return False if that was already so."""
        tables = self._tables
        if not isinstance(tables, SqliteAudit) or tables.reads_any_text:
            return False
        tables.reads_any_text = True
        return True

    async def fetch(self, sql: str, *parameters: object) -> list[Row]:
        """Run `AuditTables.fetch`; if it fails on text that is not UTF-8, run it again."""
        sql, values = _with_casts(sql, parameters), map(_encoded, parameters)
        try:
            return await self._tables.fetch(sql, *values)
        except AuditUnavailable:
            if not self.read_any_text():
                raise
        return await self._tables.fetch(sql, *map(_encoded, parameters))

    async def scan(
        self, sql: str, *parameters: object, work: Callable[[list[Row]], None]
    ) -> Row | None:
        sql, values = _with_casts(sql, parameters), map(_encoded, parameters)
        return await self._tables.scan(sql, *values, work=work)


def _with_casts(sql: str, parameters: Sequence[object]) -> str:
    values = iter(parameters)
    return re.sub(r"\?", lambda _: "CAST(? AS TEXT)" if _has_surrogates(next(values)) else "?", sql)


def _encoded(value: object) -> object:
    """Return a query parameter; text with surrogates is returned as bytes, for `CAST`."""
    if isinstance(value, str) and _has_surrogates(value):
        return value.encode(errors="surrogateescape")
    return value


def _has_surrogates(value: object) -> bool:
    return isinstance(value, str) and not is_unicode(value)


class _Term:
    """One condition of a query.

    Args:
        sql: The condition as SQL.
        values: The parameters of the condition.
        index: The part of the condition that can use an index; "" if no index helps.
    """

    def __init__(self, sql: str, *values: str, index: str = "") -> None:
        self.sql = sql
        self.values = values
        self.index = index


_Position: TypeAlias = tuple[int, str, int]  # a record's time, writer and number


class _Scan:
    """A scan of one index from new records to old ones, in time windows, for a limited time.

    Args:
        queries: The queries of the database.
        terms: All conditions of the query.
        wanted: The filter, which contains the period and the position to start from.
    """

    def __init__(self, queries: _Queries, terms: list[_Term], wanted: CallFilter) -> None:
        self._queries = queries
        self._terms = terms
        self._since = wanted.since
        self._until = wanted.until
        self._after = _position(wanted.after) if wanted.after else None
        self._by = _Term("", index=_INDEXED)  # the condition whose index the scan uses

    async def choose_index(self) -> None:
        """Choose the index that has the fewest of the newest records."""
        found: list[tuple[int, _Term]] = []
        candidates = [each for each in self._terms if each.index]
        for term in candidates:
            self._by = term
            if len(candidates) > 1:
                found.append((await self._window(PROBE, self._first_end()) or 0, term))
        if found:
            self._by = min(found, key=lambda each: each[0])[1]

    async def run(self, limit: int) -> tuple[list[Row], list[_Position]]:
        """Return up to `limit` matching records, and where to continue; [] if none are left."""
        deadline, size = monotonic() + SCAN_SECONDS, FIRST_WINDOW
        found: list[Row] = []
        end = self._first_end()
        while True:
            begun = monotonic()
            start = await self._window(size, end)
            found += await self._matching(start, end, limit - len(found))
            if len(found) >= limit:
                return found, [_position_of(found[-1])]
            if start is None:
                return found, []
            if monotonic() > deadline:
                return found, [(start, "", 0)]
            if monotonic() - begun < SCAN_SECONDS / 10:
                size *= 2
            end = start

    def _first_end(self) -> int | None:
        """Return the time before which the scan starts; None to start at the newest record."""
        ends = [self._until] if self._until is not None else []
        if self._after is not None:
            at, writer, _ = self._after
            # If the last window was read only in part, records of the same microsecond may remain.
            ends.append(min(at + 1, _LATEST) if writer else at)
        return min(ends, default=None)

    async def _window(self, size: int, end: int | None) -> int | None:
        """Return the time of the last of `size` records before `end`; None if there are fewer."""
        where, parameters = self._between(None, end)
        sql = f"SELECT at FROM audit WHERE {where} ORDER BY at DESC LIMIT 1 OFFSET ?"  # noqa: S608
        found = await self._queries.fetch(sql, *parameters, size - 1)
        return _time_of(found[0][0]) if found else None

    async def _matching(self, start: int | None, end: int | None, limit: int) -> list[Row]:
        where, parameters = self._between(start, end)
        conditions = [where]
        for term in self._terms:
            # Keep other indexes from being used for this window: they may match many records.
            conditions.append(term.sql if term is self._by else _unindexed(term.sql))
            parameters += term.values
        if self._after is not None:
            conditions.append("(at, writer, seq) < (?, ?, ?)")
            parameters += self._after
        sql = f"{_RECORDS} WHERE {' AND '.join(conditions)} {_NEWEST} LIMIT ?"
        return await self._queries.fetch(sql, *parameters, limit)

    def _between(self, start: int | None, end: int | None) -> tuple[str, list[object]]:
        where, parameters = ["at >= ?"], list[object]([max(start or 0, self._since or 0)])
        if end is not None:
            where.append("at < ?")
            parameters.append(end)
        return " AND ".join([*where, self._by.index]), [*parameters, *self._by.values]


def _unindexed(sql: str) -> str:
    for column in ('"user"', "tool", "reason", "status", "kind", "writer"):
        sql = sql.replace(f"{column} ", f"{column} || '' ")
    return sql


def _position_of(row: Row) -> _Position:
    writer, seq, at = row[:3]
    if isinstance(writer, str) and isinstance(seq, int):
        return _time_of(at), writer, seq
    return _time_of(at), "", 0  # damaged: the next page skips the rest of this microsecond


def _time_of(at: object) -> int:
    """Return a sorting key for a record's time: text and blobs sort after all numbers."""
    return int(min(at, _LATEST)) if isinstance(at, int | float) else _LATEST


def _is_between(at: object, since: int | None, until: int | None) -> bool:
    if not isinstance(at, int):
        return True
    return (since is None or at >= since) and (until is None or at < until)


def _cursor(at: int, writer: str, seq: int) -> str:
    text = f"{at} {writer} {seq}".encode(errors="surrogateescape")
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _position(cursor: str) -> _Position:
    padded = cursor + "=" * (-len(cursor) % 4)
    text = base64.b64decode(padded, altchars=b"-_", validate=True)
    at, _, rest = text.decode(errors="surrogateescape").partition(" ")
    writer, _, seq = rest.rpartition(" ")
    return int(at), writer, int(seq)


def _shown(record: JsonObject, records: Sequence[JsonObject]) -> JsonObject:
    """Return the members to show for a call, including any damage in the call's records."""
    shown = {name: record[name] for name in _CALL_MEMBERS if name in record}
    damaged = dict.fromkeys(name for each in records for name in each.get("damaged", ()))
    return shown | ({"damaged": [*damaged]} if damaged else {})


def _last_of(records: Sequence[JsonObject]) -> str:
    return str(records[-1].get("kind", ""))


_ASKED = {"status": "asked", "reason": ""}
# What became of a call that asked for an approval, by the last decision.
_VERDICTS = {
    "approve": {"status": "asked", "reason": "approval_approved"},
    "deny": {"status": "refused", "reason": "approval_denied"},
    "expire": {"status": "refused", "reason": "approval_expired"},
}
_CALL_MEMBERS = ("call", "at", "user", "key", "tool", "risk", "reason", "rule")
