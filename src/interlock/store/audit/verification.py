"""Verification that no record of an audit trail was changed, removed, moved or added.

Each record is checked against the stored record before it, so that one change is reported once,
where it is. The signed heads then show whether a chain was rewritten or cut off. The heads in a
copy of the trail show whether the whole database was replaced by an older one.

If the key was replaced, the chains of before keep their hashes. Their ends are signed with the
present key, so nobody can change them or add to them, even with the old key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey
from interlock.store.audit.copy_reading import TrailCopy
from interlock.store.audit.heads import FIRST_HASH, ChainHash, Register, StoredHead, chain_hash
from interlock.store.audit.names import OF_CALLS
from interlock.store.audit.records import as_text, invalid_columns
from interlock.text.timestamps import rfc3339
from interlock.types import JsonObject

REGISTER = "the register of writers"
COPY_LAG = 10_000_000  # microseconds within which a record must be in the copy
MAX_PROBLEMS = 100  # problems that are listed; further problems are only counted

# Positions in a row that is read without the writer's column.
_AT, _KIND, _USER, _BODY, _HASH = 1, 3, 5, 11, 12
_COLUMNS, _TEXTS = slice(_AT, _BODY), slice(_AT + 1, _BODY)
_BEFORE, _AFTER = slice(_AT, _USER), slice(_USER + 1, _BODY)

_encode = msgspec.json.Encoder().encode


class TrailProblem(NamedTuple):
    """A sign of tampering or damage at one place in the trail.

    Attributes:
        writer: The writer whose chain has the problem; `REGISTER` if the register of
            all writers has it.
        seq: The number of the record; 0 if the problem concerns the whole chain.
        text: A description of the problem.
    """

    writer: str
    seq: int
    text: str

    def __str__(self) -> str:
        where = self.writer if self.writer == REGISTER else f"writer {self.writer}"
        return f"{where}, record {self.seq}: {self.text}" if self.seq else f"{where}: {self.text}"


class Verification:
    """A check of all records of a trail, in the order of writer and number.

    Args:
        heads: The heads of all chains.
        register: The stored register of the heads; None if it is missing.
        key: The key that the trail was written with.
        copy: Copies of the trail, which the database must agree with; None for no copy.

    Attributes:
        records: The number of records checked so far.
        first, last: The times of the oldest and of the newest record, in microseconds since 1970.
        problems: The problems found, up to `MAX_PROBLEMS`.
        total: The number of problems found, listed or not.
    """

    def __init__(
        self,
        heads: Iterable[StoredHead],
        register: Register | None,
        key: GatewayKey,
        copy: TrailCopy | None = None,
    ) -> None:
        self.records = 0
        self.writers = 0
        self.first: int | None = None
        self.last: int | None = None
        self.problems: list[TrailProblem] = []
        self.total = 0
        self._purged_before = ""  # a time; records before it may have been purged
        self._copy = copy or TrailCopy(0)
        self._key = key
        self._hashes: dict[str, ChainHash] = {}  # by the fingerprint of the key
        self._register = register
        self._all_heads = list(heads)
        self._has_bad_head = False
        self._headless: set[str] = set()  # writers with records but no head
        self._chain: _Chain | None = None
        self._seen: set[str] = set()
        self._heads: dict[str, StoredHead | None] = {}  # None if the head is damaged
        for head in self._all_heads:
            self._heads[head.writer] = self._checked(head)

    def as_json(self) -> JsonObject:
        return {
            "whole": not self.total,
            "records": self.records,
            "writers": self.writers,
            "first": rfc3339(self.first),
            "last": rfc3339(self.last),
            "problems": [each._asdict() for each in self.problems],
        }

    def check(self, writer: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Check the next rows of one writer. The rows lack the column `writer`."""
        chain = self._chain
        if chain is None or writer != chain.writer:
            chain = self._begin(writer)
        chain.check(rows)

    def finish(self) -> None:
        """Check for chains that are missing or end too early. Call this after all rows."""
        self._end_chain()
        for writer, head in self._heads.items():
            if writer not in self._seen and head is not None:
                mark = self._copy.marks.get(writer)
                if max(head.seq, mark.seq if mark else 0) > head.base_seq:
                    self._begin(writer)
        self._end_chain()
        self._check_register()
        self._check_copy()

    def _check_register(self) -> None:
        """Check that no head was removed, added or replaced by an older one.

        A problem of a head that is reported already also shows in the sum, so it is not repeated.
        """
        register, heads = self._register, self._all_heads
        if register is None:
            if heads or self._seen:
                self._report(REGISTER, 0, "is missing")
            return
        if not register.is_signed(self._key):
            self._report(REGISTER, 0, "was changed, or is not signed by this key")
        elif (missing := register.heads - len(heads) - len(self._headless)) > 0:
            text = f"{missing} of {register.heads} writers were removed with all their records"
            self._report(REGISTER, 0, text)
        elif not self._has_bad_head and not register.fits(self._key, heads):
            self._report(REGISTER, 0, "a writer was removed, added, or put back to an older state")

    def _check_copy(self) -> None:
        copy = self._copy
        for problem in copy.problems:
            self._report(*problem)
        for writer, mark in copy.marks.items():
            is_known = writer in self._heads or writer in self._seen
            if not is_known and mark.at >= self._purged_before:
                self._report(writer, mark.seq, "is missing with its whole chain")
        if not copy.first:
            return
        for head in self._all_heads:
            is_expected = copy.hosts is None or head.host in copy.hosts
            since = str(rfc3339(head.started)) if isinstance(head.started, int) else ""
            is_recent = since >= str(rfc3339(copy.read_at - COPY_LAG))
            is_expected = is_expected and not is_recent and since >= copy.first
            if is_expected and head.writer not in copy.marks:
                self._report(head.writer, 0, "is not in the copy")

    def _begin(self, writer: str) -> _Chain:
        self._end_chain()
        self._seen.add(writer)
        self.writers += 1
        if writer not in self._heads:
            self._headless.add(writer)
            self._report(writer, 0, "has records but no head")
        head, key = self._heads.get(writer), self._key.of(writer)
        if head is not None and head.ended is None and key is not self._key:
            self._report(writer, head.seq, "is not closed, though its key was replaced")
        if (hash := self._hashes.get(key.fingerprint)) is None:
            hash = self._hashes[key.fingerprint] = ChainHash(key)
        self._chain = _Chain(writer, head, self._copy, hash, self._report)
        return self._chain

    def _end_chain(self) -> None:
        chain, self._chain = self._chain, None
        if chain is None:
            return
        chain.finish()
        self.records += chain.records
        self._purged_before = max(chain.purged_before, self._purged_before)
        times = [at for at in (chain.first, chain.last) if at is not None]
        if times:
            self.first = min(times if self.first is None else [self.first, *times])
            self.last = max(times if self.last is None else [self.last, *times])

    def _checked(self, head: StoredHead) -> StoredHead | None:
        """Return a head if its signatures are valid; None if it is damaged."""
        if invalid := head.invalid_columns():
            self._has_bad_head = True
            self._report(head.writer, 0, f"the head was changed: invalid {', '.join(invalid)}")
            return None
        if problem := head.problem(self._key):
            self._has_bad_head = True
            self._report(head.writer, head.base_seq if "purge" in problem else head.seq, problem)
        return head

    def _report(self, writer: str, seq: int, text: str) -> None:
        self.total += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(TrailProblem(as_text(writer), seq, text))


class _Purge(Struct):
    before: str = ""


class _Damaged(Exception):
    """A row contains a value that no writer can have written."""


class _Chain:
    """The check of one writer's chain."""

    def __init__(
        self,
        writer: str,
        head: StoredHead | None,
        copy: TrailCopy,
        hash: ChainHash,
        report: Callable[[str, int, str], None],
    ) -> None:
        self.writer = writer
        self.records = 0
        self.first: int | None = None
        self.last: int | None = None
        self.purged_before = ""
        self._head = head
        self._report = report
        self._keyed_hash = hash
        self._seq = 0
        self._hash = FIRST_HASH
        # Checks of the record with a number; each returns the problem, or "".
        self._expected: dict[int, list[Callable[[tuple[Any, ...]], str]]] = {}
        self._must_reach = 0  # the number of a record that must exist
        if head is not None:
            if head.base_seq:
                self._seq, self._hash = head.base_seq, head.base_hash or b""
            self._expect(head.seq, partial(_differs, "head", head.hash))
        if mark := copy.marks.get(writer):
            self._expect(mark.seq, partial(_differs, "copy", mark.hash))
            if mark.has_records:
                not_copied = partial(_not_copied, copy.read_at - COPY_LAG)
                self._expected.setdefault(mark.seq + 1, []).append(not_copied)

    def _expect(self, seq: int, check: Callable[[tuple[Any, ...]], str]) -> None:
        if seq > self._seq:
            self._must_reach = max(seq, self._must_reach)
            self._expected.setdefault(seq, []).append(check)

    def check(self, rows: Sequence[tuple[Any, ...]]) -> None:
        rest = iter(rows)
        while (damaged := self._check_until_damage(rest)) is not None:
            self._report_damage(damaged)
        self.records += len(rows)
        times = [row[_AT] for row in (rows[0], rows[-1]) if isinstance(row[_AT], int)]
        if times:
            self.first = times[0] if self.first is None else self.first
            self.last = times[-1]

    def _check_until_damage(self, rows: Iterator[tuple[Any, ...]]) -> tuple[Any, ...] | None:
        """Check rows until one is damaged; return the damaged row, or None."""
        last, previous, expected = self._seq, self._hash, self._expected
        inner, outer = self._keyed_hash.inner, self._keyed_hash.outer
        pseudonyms = self._keyed_hash.pseudonyms
        try:
            for row in rows:  # inlined for speed: all checks of an undamaged record
                seq, hash = row[0], row[_HASH]
                columns = (*row[_BEFORE], pseudonyms[row[_USER]], *row[_AFTER])
                body = row[_BODY]
                if row[_KIND] not in OF_CALLS:
                    body = pseudonyms.covered_body(row[_KIND], body)
                first, second = inner.copy(), outer.copy()
                first.update(previous + seq.to_bytes(8, "big") + _encode(columns) + body.encode())
                second.update(first.digest())
                if seq != last + 1 or hash != second.digest():
                    self._report_change(row, last)
                "".join(row[_TEXTS])  # raises TypeError for a blob, which JSON may encode like text
                if seq in expected:
                    self._check_expected(row)
                if row[_KIND] == "checkpoint":
                    self._read_purge(row[_BODY])
                last, previous = seq, hash
        except (_Damaged, TypeError, AttributeError, ValueError, OverflowError):
            return row
        finally:
            self._seq, self._hash = last, previous
        return None

    def _check_expected(self, row: tuple[Any, ...]) -> None:
        for check in self._expected[row[0]]:
            if text := check(row):
                self._report(self.writer, row[0], text)

    def _report_change(self, row: tuple[Any, ...], last: int) -> None:
        if invalid_columns((self.writer, *row)):
            raise _Damaged
        seq = row[0]
        if seq == last + 1:
            text = "was changed, or does not follow the record before it"
            self._report(self.writer, seq, text)
        else:
            self._report_place(seq, last)

    def _report_damage(self, row: tuple[Any, ...]) -> None:
        """Report a damaged row, and continue the chain after it."""
        seq, hash = row[0], row[_HASH]
        invalid = invalid_columns((self.writer, *row))
        if "seq" in invalid:
            self._report(self.writer, 0, f"has a record with the invalid number {as_text(seq)}")
            return
        if seq != self._seq + 1:
            self._report_place(seq, self._seq)
        self._report(self.writer, seq, f"was changed: invalid {', '.join(invalid)}")
        if invalid == ["hash"]:
            columns, body = self._keyed_hash.pseudonyms.covered(row[_COLUMNS], row[_BODY])
            hash = chain_hash(self._hash, seq, columns, body, self._keyed_hash.key)
        self._seq, self._hash = seq, hash if isinstance(hash, bytes) else b""

    def _report_place(self, seq: int, last: int) -> None:
        if seq > last:
            self._report_gap(last + 1, seq - 1)
        else:
            self._report(self.writer, seq, "exists, although the head states that it was purged")

    def _read_purge(self, body: str) -> None:
        with suppress(ValueError, RecursionError):  # the record was tampered with
            before = msgspec.json.decode(body, type=_Purge).before
            self.purged_before = max(before, self.purged_before)

    def finish(self) -> None:
        if self._must_reach > self._seq:
            self._report_gap(self._seq + 1, self._must_reach)
        head = self._head
        if head is not None and head.ended is not None and self._seq > head.seq >= head.base_seq:
            self._report(self.writer, head.seq + 1, "was added after the writer had ended")

    def _report_gap(self, first: int, last: int) -> None:
        also = "" if last == first else f", with all records up to {last}"
        self._report(self.writer, first, f"is missing{also}")


def _differs(where: str, hash: bytes, row: tuple[Any, ...]) -> str:
    return "" if row[_HASH] == hash else f"is not the record that the {where} states"


def _not_copied(until: int, row: tuple[Any, ...]) -> str:
    is_old = isinstance(row[_AT], int) and row[_AT] < until
    return "is missing in the copy, with all later records of this writer" if is_old else ""
