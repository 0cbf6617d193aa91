"""Audit records for tests, and the check of their chains."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import AuditUnavailable
from interlock.store import AuditRecord
from interlock.store.audit.group_commit import WAIT
from interlock.store.audit.heads import FIRST_HASH, chain_hash, chain_key
from interlock.store.audit.names import Pseudonyms

KEY = GatewayKey(bytes(range(32)))
NAMES = Pseudonyms(KEY)
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
        covered = NAMES.covered(middle, body)
        assert hash == chain_hash(previous, seq, *covered, chain_key(KEY)), (
            f"record {seq} of {writer}"
        )
        previous = hash
    return lengths


async def within_a_second(work: Awaitable[object]) -> None:
    """Wait until an append fails, while what it needs is still missing."""
    assert WAIT < 1.0
    with pytest.raises(AuditUnavailable):
        await work
