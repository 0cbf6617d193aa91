"""Refusals for the audit trail: a caller that repeats one does not fill the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.store import AuditRecord

INTERVAL = 1.0  # seconds between two records of the same refusal
MAX_REFUSALS = 10_000  # different ones in an interval; further ones are counted by reason only

_encode = msgspec.json.Encoder().encode


class _Body(Struct, omit_defaults=True):
    surface: str
    count: int = 1  # refusals that the record stands for
    address: str = ""
    rule: str = ""


class _Repeated(Struct):
    record: AuditRecord
    body: _Body
    count: int = 0  # repetitions that are not recorded yet


class Refusals:
    """Writes the first of equal refusals at once, and the others once a second with a count.

    Args:
        write: Writes a record.
    """

    def __init__(self, write: Callable[[AuditRecord], None]) -> None:
        self._write = write
        self._recent: dict[Hashable, _Repeated] = {}

    def add(
        self,
        record: AuditRecord,
        surface: str,
        *,
        is_tool: bool = False,
        address: str = "",
        rule: str = "",
    ) -> None:
        """Write or count a refusal.

        Args:
            record: The refusal.
            surface: The part of interlock that the call came through.
            is_tool: `record.tool` exists. Invented names are not counted separately.
            address: The network address of the caller.
            rule: Id of the rule that decided.
        """
        key: Hashable = (
            *(record.tenant, record.user, record.key, record.reason),
            record.tool if is_tool else address,
        )
        repeated = self._recent.get(key)
        if repeated is None and len(self._recent) >= MAX_REFUSALS:
            key = record.reason
            record, address, rule = AuditRecord("refused", reason=record.reason), "", ""
            repeated = self._recent.get(key)
        if repeated is not None:
            repeated.count += 1
            return
        body = _Body(surface, address=address, rule=rule)
        self._recent[key] = _Repeated(record, body)
        self._write(replace(record, body=_encode(body)))
        asyncio.get_running_loop().call_later(INTERVAL, self._elapsed, key)

    def flush(self) -> None:
        """Write the counts that are not recorded yet."""
        for repeated in self._recent.values():
            self._write_count(repeated)

    def _elapsed(self, key: Hashable) -> None:
        repeated = self._recent[key]
        if not repeated.count:
            del self._recent[key]
            return
        self._write_count(repeated)
        asyncio.get_running_loop().call_later(INTERVAL, self._elapsed, key)

    def _write_count(self, repeated: _Repeated) -> None:
        if repeated.count:
            repeated.body.count = repeated.count
            body = _encode(repeated.body)
            repeated.count = 0
            self._write(replace(repeated.record, call="", body=body))
