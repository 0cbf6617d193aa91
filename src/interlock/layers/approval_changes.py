"""Follows the approvals in a database, which other processes change as well."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from interlock.errors import InterlockError
from interlock.store.approvals import Approval, ApprovalStore
from interlock.store.database.changes import ChangeFeed

POLL_EVERY = 1.0  # seconds between two reads of an approval that a call waits for
PURGE_EVERY = 3_600.0  # seconds between two deletions of old approvals
_log = logging.getLogger("interlock.approvals")


class ApprovalChanges:
    """Wakes calls whose approvals have changed, expires overdue approvals and deletes old ones.

    Args:
        store: The storage for approvals.
        expire: Expires an approval, given the time.
        keep: The microseconds from an approval's expiry until it is deleted.
        now: Returns the database's time in microseconds since 1970.

    Attributes:
        counts: The number of approvals in each state, read at most once a second.
    """

    def __init__(
        self,
        store: ApprovalStore,
        expire: Callable[[Approval, int], Awaitable[None]],
        keep: int,
        now: Callable[[], int],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._store = store
        self._expire = expire
        self._keep = keep
        self.now = now
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._purged_at = 0
        self._looked_at = 0
        self._next_expiry = 0.0

    @asynccontextmanager
    async def running(self, feed: ChangeFeed) -> AsyncGenerator[None, None]:
        """Follow other processes' decisions and expire overdue approvals while the context is open.

        Args:
            feed: Reports changes in the database.
        """
        with suppress(InterlockError):  # the next step reports the error
            await feed.set_clock()
            await self.refresh()
        async with feed.follow("approvals", self._step, _log, "approvals"):
            yield

    async def _step(self, has_changed: bool) -> None:
        now = self.now()
        was_set_back = now < self._looked_at
        is_due = now >= min(self._next_expiry, self._purged_at + PURGE_EVERY * 1_000_000)
        if has_changed or was_set_back or is_due:
            await self.refresh()
        self._looked_at = now

    async def refresh(self) -> None:
        """Wake calls whose approvals other processes have changed, and expire overdue ones.

        Raises:
            StoreError: The database is unavailable.
        """
        changed = await self._store.changed()
        now = self.now()
        for overdue in await self._store.overdue(now):
            await self._expire(overdue, now)
            changed.add(overdue.id)
        for id in changed:
            self.note(id)
        if changed or not self._purged_at:
            self.counts = await self._store.counts(now)
        if now - self._purged_at > PURGE_EVERY * 1_000_000:
            await self._store.purge(now - self._keep)
            self._purged_at = now
        self._next_expiry = await self._store.next_expiry()

    async def decided(self, id: str) -> None:
        """Return as soon as an approval is no longer pending."""
        while True:
            changed = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(id, set()).add(changed)
            try:
                if (await self._store.get(id)).state_at(self.now()) != "pending":
                    return
                await asyncio.wait([changed], timeout=POLL_EVERY)
            finally:
                self._waiters[id].discard(changed)
                if not self._waiters[id]:
                    del self._waiters[id]

    def note(self, id: str) -> None:
        """Wake the calls that wait for an approval, because it has changed."""
        for waiter in self._waiters.get(id, ()):
            if not waiter.done():
                waiter.set_result(None)
