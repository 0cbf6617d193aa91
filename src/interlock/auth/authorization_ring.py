"""The authorizations of the front door in memory, so that calls need no database access.

1. A token is opened, and then its authorization is read once. An unsealable token costs no read.
2. A change in the database takes effect within a second: authorizations that ended are reported, so
   that their calls, sessions and streams end too.
3. While the database is unavailable, authorizations stay valid for `SERVED_FOR` seconds.
4. What a person may do now limits every token: the current rights of the API key that signed in, or
   what the person's issuer has last said.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from time import monotonic
from typing import Protocol

from msgspec.structs import replace

from interlock.auth.access_token import AccessToken
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import SERVED_FOR, TOUCH_EVERY, CredentialFeed, KeyRing
from interlock.auth.known_access import CLIENT_CLAIM, KnownAccess, KnownAuthorization
from interlock.auth.principal import Principal
from interlock.auth.stored_authorization import StoredAuthorization, StoredPerson
from interlock.errors import AuthUnavailable, InterlockError, StoreError
from interlock.text.timestamps import now_micros

MAX_KEPT = 10_000  # authorizations and tokens in memory; the least recently used one leaves
_MICROS = 1_000_000
_log = logging.getLogger("interlock.gateway")


class AuthorizationSource(Protocol):
    """The storage of authorizations. Every method may raise a `StoreError`."""

    async def get(self, id: str) -> StoredAuthorization | None: ...
    async def changed(self) -> set[str]: ...
    async def list(self, *, active_at: int) -> Sequence[StoredAuthorization]: ...
    async def expired(self, since: int, now: int) -> Sequence[str]: ...
    async def touch(self, used: Mapping[str, tuple[int, int]]) -> None: ...


class AuthorizationRing:
    """Finds the owners of access tokens, and follows changes of their authorizations.

    Args:
        source: The storage of authorizations.
        person: Returns what is stored of a person, given the user and the tenant.
        secret: The gateway's key, which seals the tokens.
        keys: The API keys; an authorization that a key signed in ends with the key.
        may_go_on: Returns whether the configuration and operators still let the client of an
            authorization act for its person.
        with_rights: Returns a person with the groups and scopes of the current configuration; None
            if the person may not go on.
        on_end: Called with the ids of authorizations that ended.
        clock: The monotonic clock, in seconds.
        wall: The wall clock, in microseconds since 1970.
    """

    def __init__(
        self,
        source: AuthorizationSource,
        person: Callable[[str, str], Awaitable[StoredPerson | None]],
        secret: GatewayKey,
        keys: KeyRing,
        *,
        may_go_on: Callable[[StoredAuthorization], bool] = lambda _: True,
        with_rights: Callable[[StoredPerson], StoredPerson | None] = lambda person: person,
        on_end: Callable[[Collection[str]], None] = lambda _: None,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], int] = now_micros,
    ) -> None:
        self._source = source
        self._find_person = person
        self._secret = secret
        self._keys = keys
        self._may_go_on = may_go_on
        self._with_rights = with_rights
        self._on_end = on_end
        self._clock = clock
        self._wall = wall
        self._known: OrderedDict[str, KnownAuthorization] = OrderedDict()
        self._tokens: OrderedDict[bytes, KnownAccess] = OrderedDict()
        self._answered_at = clock()
        self._touched_at = clock()
        self._unread: set[str] = set()  # changed authorizations that are still to be read
        self._refreshing = asyncio.Lock()
        self._refreshes = 0  # how often changes were read; see `_read`
        self._dropped_since: int | None = None  # when one left, as there were too many
        self._is_reconfigured = False  # whether dropped authorizations must be checked
        self._has_news = False  # a generation has made its first call

    def __len__(self) -> int:
        return len(self._known)

    @asynccontextmanager
    async def running(self, feed: CredentialFeed) -> AsyncGenerator[AuthorizationRing, None]:
        """Follow changes in the database; at the end, store when authorizations were used.

        Raises:
            StoreError: The database is unavailable.
        """
        await self._source.changed()  # skip earlier changes
        try:
            async with feed.follow("authorizations", self._step, _log, "authorizations"):
                yield self
        finally:
            with suppress(InterlockError):
                await self._write_uses()

    def in_use(self) -> list[StoredPerson]:
        """Return the people whose tokens were used within the last minute."""
        since = self._wall() - int(TOUCH_EVERY * _MICROS)
        recent = (each for each in self._known.values() if each.used and each.used[0] >= since)
        return list({each.stored.user: each.person for each in recent if each.person}.values())

    # Look-ups

    def admitted(self, token: bytes, place: Hashable) -> Principal | None:
        """Return the owner of a valid token that a place has accepted before, and note its use."""
        known = self._tokens.get(sha256(token).digest())
        if known is None:
            return None
        now = self._wall()
        if known.expires <= now or self._clock() - self._answered_at > SERVED_FOR:
            return None
        self._note_use(known, now)
        return known.admitted.get(place)

    async def find(self, token: bytes) -> KnownAccess | None:
        """Return a valid token; None if it is not valid.

        Raises:
            AuthUnavailable: The database is needed, and does not answer.
        """
        digest = sha256(token).digest()
        known = self._tokens.get(digest) or await self._opened(token, digest)
        if known is None:
            return None
        if self._clock() - self._answered_at > SERVED_FOR:
            raise AuthUnavailable("authorizations cannot be verified now; try again later")
        now, authorization = self._wall(), known.authorization
        if known.token.expires * _MICROS <= now or not self._is_active(authorization, now):
            return None
        self._tokens.move_to_end(digest)
        self._note_use(known, now)
        if authorization.person is not None and authorization.person.usable_until <= now:
            raise AuthUnavailable("the issuer of this login has not answered for a day")
        return known

    async def _opened(self, token: bytes, digest: bytes) -> KnownAccess | None:
        opened = AccessToken.opened(token, self._secret)
        if opened is None or opened.expires * _MICROS <= self._wall():
            return None
        authorization = self._known.get(opened.authorization)
        if authorization is None:
            authorization = await self._read(opened.authorization)
        else:
            self._known.move_to_end(opened.authorization)
        if authorization is None or not self._is_active(authorization, self._wall()):
            return None
        principal = self._principal(authorization, opened)
        known = self._tokens[digest] = KnownAccess(opened, authorization, principal)
        authorization.tokens.append(digest)
        if len(self._tokens) > MAX_KEPT:
            oldest, unused = self._tokens.popitem(last=False)
            unused.authorization.tokens.remove(oldest)
        return known

    async def _read(self, id: str) -> KnownAuthorization | None:
        while True:
            before = self._refreshes
            try:
                stored = await self._source.get(id)
                person = None if stored is None else await self._person(stored)
            except StoreError:
                text = "authorizations cannot be verified now; try again later"
                raise AuthUnavailable(text) from None
            if stored is None:
                return None
            if before == self._refreshes:  # otherwise a change may have made this outdated
                break
        known = self._known.setdefault(id, KnownAuthorization(stored, person))
        if len(self._known) > MAX_KEPT:
            self._forget_tokens(self._known.popitem(last=False)[1])
            self._dropped_since = self._dropped_since or self._wall()
        return known

    async def _person(self, stored: StoredAuthorization) -> StoredPerson | None:
        if stored.key:
            return None
        found = await self._find_person(stored.user, stored.tenant)
        person = None if found is None else self._with_rights(found)
        if person is None:
            return None
        # The claims of the principal, so that memory has them once.
        claims = {**person.claims, CLIENT_CLAIM: stored.verified}
        return replace(person, user=stored.user, claims=claims)

    def _is_active(self, known: KnownAuthorization, now: int) -> bool:
        return self._is_current(known, now) and self._may_go_on(known.stored)

    def _is_current(self, known: KnownAuthorization, now: int) -> bool:
        stored = known.stored
        if stored.ended is not None or stored.expires <= now:
            return False
        return self.has_key(stored.key, now) if stored.key else known.person is not None

    def has_key(self, id: str, now: int | None = None) -> bool:
        """Return whether an API key is valid."""
        key = self._keys.by_id(id)
        return key is not None and key.stored.state(now or self._wall()) == "active"

    def _principal(self, known: KnownAuthorization, token: AccessToken) -> Principal:
        known.of_key = self._of_key(known)
        return known.principal(token)

    def _of_key(self, known: KnownAuthorization) -> Principal | None:
        key = self._keys.by_id(known.stored.key) if known.stored.key else None
        return None if key is None else key.principal

    def full_rights(self, principal: Principal) -> Principal | None:
        """Return a token's owner with all rights that a token could have; None for others."""
        known = self._known.get(principal.key_id)
        if known is None:
            return None
        scopes = tuple(sorted(each for each in known.owner().scopes if each.startswith("mcp:")))
        return self._principal(known, AccessToken(known.stored.id, 0, 0, scopes, principal.view))

    def _note_use(self, known: KnownAccess, now: int) -> None:
        authorization = known.authorization
        if known.token.generation > authorization.stored.seen:
            authorization.stored = replace(authorization.stored, seen=known.token.generation)
            self._has_news = True
        authorization.used = now, known.token.generation

    # Changes in the database

    async def _step(self, has_changed: bool) -> None:
        try:
            if has_changed or self._unread:
                await self.refresh()
            self._answered_at = self._clock()
            if self._has_news or self._clock() - self._touched_at >= TOUCH_EVERY:
                self._has_news, self._touched_at = False, self._clock()
                await self._write_uses()
            if self._dropped_since is not None:
                await self._report_dropped(self._dropped_since)
        finally:
            self.report_ended(is_whole=False)

    async def refresh(self) -> None:
        """Apply changes in the database now, such as one that this gateway has just made.

        Raises:
            StoreError: The database is unavailable.
        """
        # One after the other: an answer of the database that is late would bring old rights back.
        async with self._refreshing:
            await self._refresh()
        self.report_ended()

    async def _refresh(self) -> None:
        self._unread |= await self._source.changed()
        self._refreshes += 1
        for id in list(self._unread):
            known = self._known.get(id)
            if known is None and self._dropped_since is None:
                self._unread.discard(id)
                continue
            stored = await self._source.get(id)
            if known is None:
                # It may have left the memory while its sessions and streams go on.
                if stored is None or stored.ended is not None:
                    self._on_end([id])
                self._unread.discard(id)
                continue
            if stored is None:
                stored = replace(known.stored, ended=self._wall(), reason="deleted")
            known.person = await self._person(stored)
            known.stored = stored
            self._forget_tokens(known)
            self._unread.discard(id)

    def reconfigured(self) -> None:
        """Apply a new configuration to the people in memory."""
        self._is_reconfigured = True
        for known in self._known.values():
            person = known.person and self._with_rights(known.person)
            if person != known.person:
                known.person = person
                self._forget_tokens(known)
        self.report_ended()

    async def _report_dropped(self, since: int) -> None:
        """Report authorizations that ended after they were dropped: their streams may be open."""
        now = self._wall()
        ended = set(await self._source.expired(since, now))
        if self._is_reconfigured:
            active = await self._source.list(active_at=now)
            self._is_reconfigured = False
            ended |= {each.id for each in active if not self._may_go_on(each)}
        self._dropped_since = now
        if ended:
            self._on_end(ended)

    def _forget_tokens(self, known: KnownAuthorization) -> None:
        """Forget the tokens of an authorization, so that each is checked again."""
        for digest in known.tokens:
            self._tokens.pop(digest, None)
        known.tokens.clear()

    def report_ended(self, *, is_whole: bool = True) -> None:
        """Report the authorizations that have ended; unless `is_whole`, by time or key alone."""
        now, is_active = self._wall(), self._is_active if is_whole else self._is_current
        try:
            ended = [id for id, each in self._known.items() if not is_active(each, now)]
            for each in self._known.values():
                if each.stored.key and each.of_key is not self._of_key(each):
                    self._forget_tokens(each)  # the key has other rights now
        except AuthUnavailable:  # the keys are not known now, and so nothing ends
            return
        for id in ended:
            self._forget_tokens(self._known.pop(id))
        if ended:
            self._on_end(ended)

    async def _write_uses(self) -> None:
        all = self._known.items()
        used = {id: each.used for id, each in all if each.used and each.used != each.written}
        if used:
            await self._source.touch(used)
        for id, at in used.items():
            if (known := self._known.get(id)) is not None:
                known.written = at
