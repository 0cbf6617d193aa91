"""Reading copies of an audit trail, to hold the database against them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey, TrailKey
from interlock.errors import ConfigError
from interlock.store.audit.copies import LineChain, files_of
from interlock.store.audit.names import people_of
from interlock.text.timestamps import now_micros

_LINE = re.compile(rb'(.+),"line":(\d{1,15}),"mac":"([0-9a-f]{32})"\}\n', re.DOTALL)


class Mark(NamedTuple):
    """A record that the trail must contain, because a copy of the trail contains it."""

    seq: int
    hash: bytes
    at: str
    has_records: bool = True  # whether the copy contains the records before this one


class TrailCopy(Struct):
    """The content of copies of a trail, as far as the verification needs it.

    Attributes:
        marks: The newest record of each writer.
        problems: A writer, the number of a record or 0, and what is wrong there in the copy.
        first: The time of the oldest line; "" without lines.
        read_at: The time at which reading began, in microseconds since 1970.
        hosts: The hosts whose writers the copies contain; None for all hosts.
    """

    read_at: int
    marks: dict[str, Mark] = {}
    problems: list[tuple[str, int, str]] = []
    first: str = ""
    hosts: frozenset[str] | None = None


class _Content(Struct):
    kind: str
    writer: str
    seq: int
    hash: str
    at: str


def read_copy(
    places: Iterable[Path], key: GatewayKey, *, hosts: frozenset[str] | None = None
) -> TrailCopy:
    """Read copies of a trail, and check their own chains.

    Args:
        places: Folders of copies (`gateway.audit.copy`), or files of them in order.
        key: The key that the copies were written with.
        hosts: The hosts whose writers the copies contain; None for all hosts.

    Raises:
        ConfigError: A file cannot be read, or has no line of a copy.
    """
    copy = TrailCopy(now_micros(), hosts=hosts)
    chains: dict[str, _CopiedChain] = {}
    for path in _files(places):
        is_copy = False
        for line in _lines(path):
            is_copy = True
            content = line.content
            chain = chains.get(content.writer)
            if chain is None:
                chain = chains[content.writer] = _CopiedChain(key.of(content.writer), line)
            copy.problems += [(content.writer, *problem) for problem in chain.check(line)]
            copy.first = min(copy.first or content.at, content.at)
            mark = copy.marks.get(content.writer)
            if mark is None or content.seq >= mark.seq:
                has_records = content.kind != "head" or (mark is not None and mark.has_records)
                mark = Mark(content.seq, line.hash, content.at, has_records)
                copy.marks[content.writer] = mark
        if not is_copy and path.stat().st_size:
            raise ConfigError(f"{path} is not a copy of an audit trail: it has no line of one")
    return copy


class _Line(NamedTuple):
    content: _Content
    hash: bytes
    encoded: bytes  # the line without its number and keyed hash
    number: int
    mac: bytes

    @property
    def people(self) -> tuple[str, ...]:
        return people_of(msgspec.json.decode(self.encoded))


class _CopiedChain:
    """The check of one writer's lines."""

    def __init__(self, key: TrailKey, first: _Line) -> None:
        self._chain = LineChain(key)
        self._chain.line = first.number - 1  # the lines before may be in a file that expired
        self._can_check = first.number == 1  # whether the line before is known
        self._seq: int | None = None

    def check(self, line: _Line) -> Iterator[tuple[int, str]]:
        """Yield the number of a record, or 0, and what is wrong there."""
        chain, content = self._chain, line.content
        expected, is_record = chain.line + 1, content.kind != "head"
        known = content.seq if self._seq is None else self._seq
        if line.number != expected:
            where = "a line" if line.number < expected else f"line {expected} of this writer"
            if not (is_record and content.seq > known + 1):
                yield content.seq, f"in the copy, {where} is missing or was moved before this one"
        elif self._can_check and line.mac != chain.mac_of(line.number, line.encoded, line.people):
            yield content.seq, "was changed in the copy, or was not written with this key"
        if is_record and content.seq > known + 1:
            yield known + 1, f"is missing in the copy, with all records before {content.seq}"
        chain.line, chain.mac = line.number, line.mac
        self._can_check = True
        self._seq = max(known, content.seq)


def writers_in(folder: Path) -> set[str]:
    """Return the ids of the writers whose lines a folder of a copy contains.

    Raises:
        ConfigError: A file cannot be read.
    """
    return {line.content.writer for path in files_of(folder) for line in _lines(path)}


def line_of(raw: bytes) -> _Line | None:
    """Return a line of a copy; None if it cannot be read."""
    parts = _LINE.fullmatch(raw)
    if parts is None:
        return None
    encoded = parts[1] + b"}"
    try:
        content = msgspec.json.decode(encoded, type=_Content)
        hash = bytes.fromhex(content.hash)
    except ValueError:
        return None
    return _Line(content, hash, encoded, int(parts[2]), parts[3])


def _files(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_dir():
            yield from files_of(place)
        else:
            yield place


def _lines(path: Path) -> Iterator[_Line]:
    """Yield the lines of a file. The numbers of the others show which ones cannot be read."""
    try:
        with path.open("rb") as file:
            for raw in file:
                if (line := line_of(raw)) is not None:
                    yield line
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
