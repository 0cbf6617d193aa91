"""Audit records for tests, and the check of their chains."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from interlock.errors import AuditUnavailable
from interlock.store import AuditRecord
from interlock.store.audit.writer import FIRST_HASH

INTENT = AuditRecord("intent", "c1", "user:anna", "k1", "crm", "crm:refund", body=b'{"bytes":12}')

OUTCOME = AuditRecord("outcome", "c1", "user:anna", "k1", "crm", "crm:refund", status="ok")

Rows = Callable[..., Awaitable[list[dict[str, Any]]]]


def check_chains(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Check every chain from its first record on; return the length of each by its writer."""
    lengths: dict[str, int] = {}
    previous = FIRST_HASH
    for row in rows:
        columns = list(row.values())
        writer, seq, *middle, body, hash = columns
        previous = previous if writer in lengths else FIRST_HASH
        lengths[writer] = lengths.get(writer, 0) + 1
        assert seq == lengths[writer]
        encoded = msgspec.json.encode(middle)
        expected = sha256(previous + seq.to_bytes(8, "big") + encoded + body.encode()).digest()
        assert hash == expected, f"record {seq} of {writer}"
        previous = hash
    return lengths


async def within_a_second(work: Awaitable[object]) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(AuditUnavailable):
        await work
    assert loop.time() - began < 1.0
