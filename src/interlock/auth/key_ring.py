"""The ring of all API keys, held in memory so that requests need no database access.

1. A key is found by its SHA-256, in a single look-up.
2. A change in the database takes effect within a second. Expired and revoked keys are reported, so
   that their sessions end too. A new key is looked up in the database when it is first used.
3. While the database is unavailable, keys stay valid for `SERVED_FOR` seconds. After that, keys in
   the database are not accepted, because they may have been revoked.
4. A response never states why a key is refused. Only the audit record does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from hashlib import sha256
from time import monotonic, time_ns
from typing import Literal, Protocol

from interlock.auth import key_format
from interlock.auth.key_lookups import KeyLookups
from interlock.auth.principal import Principal
from interlock.auth.stored_key import TENANT, StoredKey
from interlock.errors import AuthUnavailable, InterlockError
from interlock.types import JsonObject

SERVED_FOR = 60.0  # seconds that keys stay valid while the database is unavailable
TOUCH_EVERY = 60.0  # seconds between two updates of when keys were last used

_log = logging.getLogger("interlock.gateway")


class KeySource(Protocol):
    """The storage that a ring loads its keys from."""

    async def load(self) -> Sequence[StoredKey]:
        """Return all keys, and start tracking changes for `changed`."""
        ...

    async def changed(self) -> Sequence[StoredKey]:
        """Return the keys that changed since the last call."""
        ...

    async def get(self, id: str) -> StoredKey: ...

    async def touch(self, used: Mapping[str, int]) -> None:
        """Record when keys were last used: microseconds since 1970 by key id."""
        ...


class CredentialFeed(Protocol):
    """Notifies followers when credentials in the database may have changed; see `ChangeFeed`."""

    def follow(
        self,
        kind: Literal["keys", "authorizations"],
        step: Callable[[bool], Awaitable[None]],
        log: logging.Logger,
        source: str,
    ) -> AbstractAsyncContextManager[None]:
        """Call `step` regularly in the context, with True if such rows may have changed."""
        ...


class KnownKey:
    """An API key in memory.

    Attributes:
        stored: The stored key, without its secret.
        principal: The key's owner; the same object as long as the owner's rights stay the same.
        in_views: The owner in each view; the authenticator fills this cache.
        admitted: The owner at each place that accepted the key; the authenticator fills this cache.
        used: When the key was last used, in microseconds since 1970; 0 once this is stored.
    """

    __slots__ = ("admitted", "in_views", "principal", "stored", "used")

    def __init__(self, stored: StoredKey) -> None:
        self.stored = stored
        self.principal = principal_of(stored)
        self.in_views: dict[str, Principal] = {}
        self.admitted: dict[Hashable, Principal] = {}
        self.used = 0


class KeyRing:
    """The keys of a database, and keys that exist in memory only.

    Args:
        source: The keys in a database; None if all keys are in memory.
        on_end: Called with the ids of keys that have expired, or were revoked or deleted.
        limits: A mapping that the ring updates with the limits of individual keys, by key id.
        clock: The monotonic clock, in seconds.
        wall: The wall clock, in nanoseconds since 1970.

    Attributes:
        of_this_run: The ids of the keys that exist in memory only.
    """

    def __init__(
        self,
        source: KeySource | None = None,
        *,
        on_end: Callable[[Collection[str]], None] = lambda _: None,
        limits: dict[str, JsonObject] | None = None,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], int] = time_ns,
    ) -> None:
        self._on_end = on_end
        self._limits = {} if limits is None else limits
        self._source = source
        self._clock = clock
        self._wall = wall
        self._by_hash: dict[bytes, KnownKey] = {}
        self._by_id: dict[str, KnownKey] = {}
        self.of_this_run: set[str] = set()
        self._active: set[str] = set()  # ids of the keys that were active at the last check
        self._answered_at = float("-inf")  # when the database was last available
        self._touched_at = 0.0
        self._refreshing = asyncio.Lock()
        self._must_load = True  # changes may have been missed
        self._lookups = None if source is None else KeyLookups(self._put_stored, clock)

    def __len__(self) -> int:
        return len(self._by_id)

    @asynccontextmanager
    async def running(self, feed: CredentialFeed) -> AsyncGenerator[KeyRing, None]:
        """Load the keys and follow changes in the database; at the end, store when keys were used.

        Raises:
            StoreError: The database is unavailable.
        """
        if self._source is None:
            yield self
            return
        await self.refresh()
        try:
            async with feed.follow("keys", self._step, _log, "API keys"):
                yield self
        finally:
            with suppress(InterlockError):
                await self.write_uses()

    # Look-ups

    def find(self, key: bytes) -> KnownKey | None:
        """Return a key by its text, whether active or not; None if the key is unknown.

        Raises:
            AuthUnavailable: The database has been unavailable for too long.
        """
        known = self._by_hash.get(sha256(key).digest())
        self._check_answers()
        return known

    def look_up(self, key: bytes) -> Awaitable[object] | None:
        """Look up a possibly new key in the database; if it exists, `find` then returns it.

        Returns:
            An awaitable that takes at most half a second; None if no look-up is made.
        """
        return None if self._lookups is None else self._lookups.begin(key)

    def admitted(self, key: bytes, place: Hashable) -> Principal | None:
        """Return the owner of a valid key that a place has accepted before, and record its use.

        Raises:
            AuthUnavailable: The database has been unavailable for too long.
        """
        known = self._by_hash.get(sha256(key).digest())
        if self._source is not None and self._clock() - self._answered_at > SERVED_FOR:
            self._check_answers()
        if known is None:
            return None
        now, stored = self._wall() // 1_000, known.stored
        if stored.revoked is not None or (stored.expires is not None and stored.expires <= now):
            return None
        known.used = now
        return known.admitted.get(place)

    def by_id(self, id: str) -> KnownKey | None:
        """Return a key by its id, whether active or not; None if the key is unknown.

        Raises:
            AuthUnavailable: The database has been unavailable for too long.
        """
        self._check_answers()
        return self._by_id.get(id)

    def active(self) -> list[KnownKey]:
        now = self._wall() // 1_000
        return [each for each in self._by_id.values() if each.stored.state(now) == "active"]

    def _check_answers(self) -> None:
        if self._source is not None and self._clock() - self._answered_at > SERVED_FOR:
            raise AuthUnavailable("keys cannot be verified now; try again later")

    def is_active(self, known: KnownKey) -> bool:
        """Return whether a key is valid now; if it is, record its use."""
        now = self._wall() // 1_000
        stored = known.stored
        if stored.revoked is not None or (stored.expires is not None and stored.expires <= now):
            return stored.state(now) == "active"
        known.used = now
        return True

    def issue(self, user: str, scopes: Sequence[str]) -> str:
        """Create a key that exists in memory only, and return its text."""
        key, id = key_format.generate()
        self.of_this_run.add(id)
        self._put(StoredKey(id, key_format.digest(key), user, scopes=tuple(scopes)))
        return key

    # Changes in the database

    async def refresh(self) -> None:
        """Load the keys that changed; load all keys at first and after a failure.

        Raises:
            StoreError: The database is unavailable.
        """
        if self._source is None:
            return
        # The source returns each change only once, so concurrent calls must not overlap.
        async with self._refreshing:
            # A failure may lose changes; then the next refresh must load all keys.
            loads, self._must_load = self._must_load, True
            stored = await (self._source.load() if loads else self._source.changed())
            if loads:
                self._forget_all_but({each.id for each in stored} | self.of_this_run)
            for each in stored:
                self._put(each)
            self._must_load = False
            self._answered_at = self._clock()

    async def _put_stored(self, id: str) -> None:
        if self._source is None:
            return
        stored = await self._source.get(id)
        if id not in self._by_id:  # otherwise a refresh may already have read a newer state
            self._put(stored)

    async def use(self, stored: StoredKey) -> None:
        """Replace a key with its newly stored state, even if the database becomes unavailable."""
        try:
            await self.refresh()
        except InterlockError:  # the next refresh loads all keys
            self._put(stored)
        self.report_ended()

    async def write_uses(self) -> None:
        """Store when keys were last used.

        Raises:
            StoreError: The database is unavailable; the next call stores these times.
        """
        used = {id: known.used for id, known in self._by_id.items() if known.used}
        for id in used:
            self._by_id[id].used = 0
        stored = {id: at for id, at in used.items() if id not in self.of_this_run}
        if not stored or self._source is None:
            return
        try:
            await self._source.touch(stored)
        except InterlockError:
            for id in stored.keys() & self._by_id.keys():
                self._by_id[id].used = max(stored[id], self._by_id[id].used)
            raise

    async def _step(self, has_changed: bool) -> None:
        try:
            if has_changed or self._must_load:
                await self.refresh()
            self._answered_at = self._clock()
            if self._clock() - self._touched_at >= TOUCH_EVERY:
                self._touched_at = self._clock()
                await self.write_uses()
        finally:
            try:
                self.report_ended()
            except Exception:  # a failing callback must not stop later refreshes
                _log.exception("the sessions of an ended key could not be ended")

    def _forget_all_but(self, ids: Collection[str]) -> None:
        for id in self._by_id.keys() - ids:
            del self._by_hash[self._by_id.pop(id).stored.hash]
            self._limits.pop(id, None)

    def _put(self, stored: StoredKey) -> None:
        known = self._by_id.get(stored.id)
        if known is None:
            known = self._by_id[stored.id] = KnownKey(stored)
            if stored.state(self._wall() // 1_000) == "active":
                self._active.add(stored.id)
        elif known.principal != (principal := principal_of(stored)):
            known.principal = principal
            known.in_views = {}
            known.admitted = {}
        known.stored = stored
        if stored.limits:
            self._limits[stored.id] = stored.limits
        else:
            self._limits.pop(stored.id, None)
        self._by_hash[stored.hash] = known

    def report_ended(self) -> None:
        """Report the keys that expired or were revoked or deleted since the last call."""
        now = self._wall() // 1_000
        ended = {
            id
            for id in self._active
            if id not in self._by_id or self._by_id[id].stored.state(now) != "active"
        }
        self._active -= ended
        if ended:
            self._on_end(ended)


def principal_of(stored: StoredKey) -> Principal:
    """Return the owner of a key."""
    tenant = "" if stored.tenant == TENANT else stored.tenant
    return Principal(
        f"user:{stored.user}",
        frozenset(stored.scopes),
        key_id=stored.id,
        tenant=tenant,
        view=stored.view,
    )
