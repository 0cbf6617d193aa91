"""The audit trail in the database: writing, signing, reading, verification and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.store.audit.heads import FIRST_HASH, chain_hash

__all__ = ["FIRST_HASH", "chain_hash"]

__getattr__ = loader(
    __name__, {"FIRST_HASH": "store.audit.heads", "chain_hash": "store.audit.heads"}
)
