"""Verification that no record of an audit trail was changed, removed, moved or added.

Each record is checked against the stored record before it, so that one change is reported once,
where it is. The signed heads then show whether a chain was rewritten or cut off. The heads in a
copy of the trail show whether the whole database was replaced by an older one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import ConfigError
from interlock.store.audit.records import as_text, invalid_columns, is_valid
from interlock.store.audit.writer import FIRST_HASH, base_message, chain_hash, head_message
from interlock.text.timestamps import rfc3339
from interlock.types import JsonObject

MAX_PROBLEMS = 100  # problems that are listed; further problems are only counted

# Positions in a row that is read without the writer's column.
_AT, _KIND, _BODY, _HASH = 1, 3, 11, 12
_HASHED, _TEXTS = slice(_AT, _BODY), slice(_AT + 1, _BODY)

_encode = msgspec.json.Encoder().encode


class TrailProblem(NamedTuple):
    """A sign of tampering or damage at one place in the trail.

    Attributes:
        writer: The writer whose chain has the problem.
        seq: The number of the record; 0 if the problem concerns the whole chain.
        text: A description of the problem.
    """

    writer: str
    seq: int
    text: str

    def __str__(self) -> str:
        where = f"writer {self.writer}, record {self.seq}" if self.seq else f"writer {self.writer}"
        return f"{where}: {self.text}"


class StoredHead(Struct, frozen=True):
    """A row of the table `audit_heads`."""

    writer: str
    started: int
    ended: int | None
    host: str
    seq: int
    hash: bytes
    signature: bytes | None
    signed_at: int | None
    open_seq: int | None
    base_seq: int
    base_hash: bytes | None
    base_signature: bytes | None

    def invalid_columns(self) -> list[str]:
        columns = _HEAD_TYPES.items()
        return [name for name, kind in columns if not is_valid(getattr(self, name), kind)]


_HEAD_TYPES = get_type_hints(StoredHead)


class Mark(NamedTuple):
    """A record that the trail must contain, because a copy of the trail contains it."""

    seq: int
    hash: bytes
    at: str


class Verification:
    """A check of all records of a trail, in the order of writer and number.

    Args:
        heads: The heads of all chains.
        key: The key that verifies signatures; None to skip this check.
        marks: The newest record of each chain in a copy of the trail.

    Attributes:
        records: The number of records checked so far.
        first, last: The times of the oldest and of the newest record, in microseconds since 1970.
        problems: The problems found, up to `MAX_PROBLEMS`.
        total: The number of problems found, listed or not.
    """

    def __init__(
        self,
        heads: Iterable[StoredHead],
        key: GatewayKey | None,
        marks: Mapping[str, Mark] | None = None,
    ) -> None:
        self.records = 0
        self.writers = 0
        self.first: int | None = None
        self.last: int | None = None
        self.problems: list[TrailProblem] = []
        self.total = 0
        self._purged_before = ""  # a time; records before it may have been purged
        self._marks = dict(marks or {})
        self._key = key
        self._chain: _Chain | None = None
        self._seen: set[str] = set()
        self._heads: dict[str, StoredHead | None] = {}  # None if the head is damaged
        for head in heads:
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
            if writer not in self._seen and head is not None and head.seq > head.base_seq:
                self._begin(writer)
        self._end_chain()
        for writer, mark in self._marks.items():
            is_known = writer in self._heads or writer in self._seen
            if not is_known and mark.at >= self._purged_before:
                self._report(writer, mark.seq, "is missing with its whole chain")

    def _begin(self, writer: str) -> _Chain:
        self._end_chain()
        self._seen.add(writer)
        self.writers += 1
        if writer not in self._heads:
            self._report(writer, 0, "has records but no head: the head was removed")
        head, mark = self._heads.get(writer), self._marks.get(writer)
        self._chain = _Chain(writer, head, mark, self._report)
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
            self._report(head.writer, 0, f"the head was changed: invalid {', '.join(invalid)}")
            return None
        if self._key is None:
            return head
        if head.base_seq:
            message = base_message(head.writer, head.base_seq, head.base_hash or b"")
            if not self._key.has_signed(message, head.base_signature or b""):
                text = "the purge up to here is not signed by this key"
                self._report(head.writer, head.base_seq, text)
        if head.signature is not None and head.signed_at is not None:
            message = head_message(head.writer, head.seq, head.hash, head.signed_at)
            if not self._key.has_signed(message, head.signature):
                self._report(head.writer, head.seq, "the head is not signed by this key")
        elif head.ended is not None or head.seq:  # a head must be signed, unless its chain is new
            self._report(head.writer, head.seq, "the head has no signature")
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
        mark: Mark | None,
        report: Callable[[str, int, str], None],
    ) -> None:
        self.writer = writer
        self.records = 0
        self.first: int | None = None
        self.last: int | None = None
        self.purged_before = ""
        self._head = head
        self._report = report
        self._seq = 0
        self._hash = FIRST_HASH
        self._expected: dict[int, tuple[bytes, str]] = {}
        if head is not None:
            if head.base_seq:
                self._seq, self._hash = head.base_seq, head.base_hash or b""
            if head.seq > self._seq:
                self._expected[head.seq] = head.hash, "is not the record that the head states"
        if mark is not None and mark.seq > self._seq:
            self._expected[mark.seq] = mark.hash, "is not the record that the copy states"

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
        try:
            for row in rows:  # inlined for speed: all checks of an undamaged record
                seq, hash = row[0], row[_HASH]
                if seq != last + 1 or hash != (
                    sha256(
                        previous
                        + seq.to_bytes(8, "big")
                        + _encode(row[_HASHED])
                        + row[_BODY].encode()
                    ).digest()
                ):
                    self._report_change(row, last)
                "".join(row[_TEXTS])  # raises TypeError for a blob, which JSON may encode like text
                if seq in expected:
                    wanted, text = expected.pop(seq)
                    if wanted != hash:
                        self._report(self.writer, seq, text)
                if row[_KIND] == "checkpoint":
                    self._read_purge(row[_BODY])
                last, previous = seq, hash
        except (_Damaged, TypeError, AttributeError, ValueError, OverflowError):
            return row
        finally:
            self._seq, self._hash = last, previous
        return None

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
        self._expected.pop(seq, None)
        if invalid == ["hash"]:
            hash = chain_hash(self._hash, seq, row[_HASHED], row[_BODY])
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
        last = max(self._expected, default=0)
        if last > self._seq:
            self._report_gap(self._seq + 1, last)
        head = self._head
        if head is not None and head.ended is not None and self._seq > head.seq >= head.base_seq:
            self._report(self.writer, head.seq + 1, "was added after the writer had ended")

    def _report_gap(self, first: int, last: int) -> None:
        also = "" if last == first else f", with all records up to {last}"
        self._report(self.writer, first, f"is missing{also}")


# The copy


class _CopiedLine(Struct):
    kind: str
    writer: str
    seq: int
    hash: str
    at: str
    micros: int = 0
    signature: str = ""


def read_copy(path: Path, key: GatewayKey | None) -> dict[str, Mark]:
    """Return the newest record of each chain in a copy of the trail, keyed by writer.

    Args:
        path: The copy, which is the file named by `gateway.audit.copy`.
        key: The key that verifies the signatures of heads in the copy; None to skip this check.

    Raises:
        ConfigError: The file cannot be read, is not a copy, or has a head with a bad signature.
    """
    marks: dict[str, Mark] = {}
    for number, line in _lines(path):
        try:
            found = msgspec.json.decode(line, type=_CopiedLine)
            hash, signature = bytes.fromhex(found.hash), bytes.fromhex(found.signature)
        except ValueError:
            raise ConfigError(f"{path}, line {number}: not a line of an audit copy") from None
        if found.kind == "checkpoint" and signature and key is not None:
            message = head_message(found.writer, found.seq, hash, found.micros)
            if not key.has_signed(message, signature):
                raise ConfigError(f"{path}, line {number}: the head is not signed by this key")
        if found.writer not in marks or found.seq >= marks[found.writer].seq:
            marks[found.writer] = Mark(found.seq, hash, found.at)
    return marks


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.endswith(b"\n"):  # the last line may be incomplete, so it is skipped
                    yield number, line
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
