"""Refusals in the audit trail. Repeated refusals are combined, so they do not fill the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.store import AuditRecord

INTERVAL = 1.0  # seconds between two records of the same refusal
MAX_REFUSALS = 10_000  # distinct refusals per interval; more are only counted by reason

_encode = msgspec.json.Encoder().encode


class _Body(Struct, omit_defaults=True):
    surface: str
    count: int = 1  # how many refusals the record is for
    address: str = ""
    rule: str = ""


class _Repeated(Struct):
    record: AuditRecord
    body: _Body
    count: int = 0  # repetitions that are not recorded yet


class Refusals:
    """Records the first of equal refusals at once, and later ones as a count each second."""

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
        """Record a refusal now, or add it to a count that is recorded later.

        Args:
            record: The record of the refusal.
            surface: The part of interlock that received the call.
            is_tool: Whether the tool `record.tool` exists. Invented names are counted together.
            address: The caller's network address.
            rule: The id of the rule that denied the call.
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
        """Record the counts that are not recorded yet."""
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
