"""The bytes that the users of a gateway store, and their limits.

1. Each user has a row with the sum of their conversations, and one with the sum of their files. A
   sum changes in the transaction of the write that it counts, so no write adds up other rows. The
   local user, whose name is empty, has no limit and no sum.
2. A write that exceeds a limit is refused as a whole. Deletions are never refused.
3. No content is written when the disk is nearly full, so that the audit trail can grow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal, TypeAlias

from sqlalchemy import func, insert, select, update

from interlock.config.gateway import ByteQuota, ChatQuotas
from interlock.errors import StoreFull
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.disk_reserve import DiskReserve
from interlock.store.database.on_conflict import KEEP_EXISTING
from interlock.store.database.tables import stored_bytes

ROW = 256  # bytes that each row counts besides its texts, so that empty rows are limited, too

Kind: TypeAlias = Literal["conversations", "files"]

_WAYS_OUT = {
    "conversations": "delete a conversation",
    "files": "delete a conversation with files; files that no conversation uses expire",
}


class ChatSpace:
    """The limits on what the users of a chat store.

    Args:
        quotas: Returns the current limits; None for no limits.
        on_refused: Called for each write that is refused.
    """

    def __init__(
        self,
        quotas: Callable[[], ChatQuotas] | None = None,
        on_refused: Callable[[], None] = lambda: None,
    ) -> None:
        self._quotas = quotas
        self._on_refused = on_refused

    async def add(self, connection: AsyncConnection, owner: str, kind: Kind, size: int) -> None:
        """Count bytes that are written, or deleted if `size` is negative, in their transaction.

        Raises:
            StoreFull: The write exceeds a limit.
        """
        if not owner:
            return
        stored = await add_bytes(connection, owner, kind, size)
        if size <= 0 or self._quotas is None:
            return
        quota: ByteQuota = getattr(self._quotas(), kind)
        total = await bytes_of_all(connection, kind)
        for whose, taken, limit in (
            (f"your {kind}", stored, quota.per_user),
            (f"the {kind} of all users", total, quota.total),
        ):
            if taken > limit:
                self._on_refused()
                raise StoreFull(
                    f"storage is full: {whose} would take {taken:,} bytes (limit {limit:,});"
                    f" {_WAYS_OUT[kind]}"
                )

    def check_disk(self, reserve: DiskReserve, size: int) -> None:
        """Raise `StoreFull` if the disk has no room for `size` bytes of users' content."""
        if self._quotas is None:
            return
        try:
            reserve.check(size)
        except StoreFull:
            self._on_refused()
            raise


def size_of(values: Collection[object]) -> int:
    """Return the bytes that a row counts: those of its texts and binary values, and `ROW`."""
    texts = (each.encode() for each in values if isinstance(each, str))
    return ROW + sum(map(len, texts)) + sum(len(each) for each in values if isinstance(each, bytes))


async def add_bytes(connection: AsyncConnection, owner: str, kind: str, size: int) -> int:
    """Change the sum of what an owner stores of a kind; return the new sum."""
    columns = stored_bytes.c
    same = (columns.owner == owner, columns.kind == kind)
    change = update(stored_bytes).where(*same).values(bytes=columns.bytes + size)
    stored = await connection.scalar(change.returning(columns.bytes))
    if stored is None:
        row = {"owner": owner, "kind": kind, "bytes": 0}
        await connection.execute(insert(stored_bytes).values(row).ext(KEEP_EXISTING))
        stored = await connection.scalar(change.returning(columns.bytes))
    return int(stored)


async def bytes_of_all(connection: AsyncConnection, kind: str) -> int:
    """Return the sum of what all owners store of a kind."""
    query = select(func.sum(stored_bytes.c.bytes)).where(stored_bytes.c.kind == kind)
    return int(await connection.scalar(query) or 0)
