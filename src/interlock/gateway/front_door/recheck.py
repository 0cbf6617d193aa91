"""Asks issuers again about people: whether they may go on, and with which groups and scopes.

1. A person is asked about when the issuer's last word is older than `auth.oauth.recheck`, before a
   refresh token is answered, and while tokens are used.
2. If the issuer refuses, all that the person has allowed ends, and so do the person's sessions.
3. If the issuer does not answer, nothing changes for a day after its last word. After that, tokens
   are neither refreshed nor accepted until it answers.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from interlock import aio
from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.principal import Principal
from interlock.auth.stored_authorization import StoredAuthorization, StoredPerson
from interlock.auth.stored_key import TENANT
from interlock.errors import InterlockError
from interlock.gateway.callers import issuer_of
from interlock.gateway.front_door.request import OAuthError
from interlock.gateway.front_door.surroundings import Surroundings
from interlock.gateway.logins.people import MAX_CLAIMS, stored_claims
from interlock.store.signed_in import SignedInStore
from interlock.text.timestamps import now_micros

if TYPE_CHECKING:
    from interlock.gateway.logins.organisation_login import OidcLogin, SignedIn

EVERY = 10.0  # seconds between two looks at the people whose tokens are used
AT_ONCE = 4  # people whom one issuer is asked about at the same time, while tokens are used
MICROS = 1_000_000
_log = logging.getLogger("interlock.gateway")


class Rechecks:
    """Stores the people whom issuers describe, and asks the issuers again.

    Args:
        store: The stored people.
        gateway: The gateway.
        end_person: Ends all that a person has allowed, given the person and the reason.
        wall: The wall clock, in microseconds since 1970.
    """

    def __init__(
        self,
        store: SignedInStore,
        gateway: Surroundings,
        end_person: Callable[[StoredPerson, str], Awaitable[None]],
        wall: Callable[[], int] = now_micros,
    ) -> None:
        self._store = store
        self._gateway = gateway
        self._end_person = end_person
        self._wall = wall
        self._process = secrets.token_hex(8)
        self._logins: dict[str, OidcLogin] = {}
        self._silent: set[str] = set()  # issuers that did not answer last, which was logged
        self._cut: set[str] = set()  # issuers with too many claims, which were logged

    # Storing

    async def signed_in(self, signed_in: SignedIn) -> None:
        """Store a person who has just signed in at an issuer.

        Raises:
            StoreError: The person cannot be stored.
        """
        await self._store.put(self.described(signed_in.principal), signed_in.refresh_token)

    async def stated(self, principal: Principal) -> None:
        """Store a person or workload that only a statement to a program describes.

        Raises:
            StoreError: It cannot be stored.
        """
        await self._store.put(self.described(principal), has_signed_in=False)

    def described(self, principal: Principal) -> StoredPerson:
        """Return a person as it is stored, with the claims that decide if all are too long."""
        claims, issuer = principal.claims, issuer_of(self._gateway.issuers(), principal.id)
        if issuer is not None:
            claims = stored_claims(claims, issuer, self._gateway.claims_of_rules())
            if claims is not principal.claims and issuer.issuer not in self._cut:
                self._cut.add(issuer.issuer)
                _log.warning(
                    "%s states over %d bytes of claims about a person; only these are used: %s",
                    *(issuer.issuer, MAX_CLAIMS, ", ".join(sorted(claims))),
                )
        return StoredPerson(
            user=principal.id,
            scopes=tuple(sorted(principal.scopes)),
            groups=tuple(sorted(principal.groups)),
            claims=claims,
            checked=self._wall(),
            tenant=principal.tenant or TENANT,
        )

    async def can_ask(self, principal: Principal) -> bool:
        """Return whether the issuer of a person can be asked again."""
        found = await self._store.person(principal.id, principal.tenant or TENANT)
        return found is not None and found.is_asked

    # Asking again

    async def check(self, stored: StoredAuthorization) -> None:
        """Ask about the person of an authorization, if the issuer's last word is too old.

        Raises:
            OAuthError: The person may not go on (`invalid_grant`), or the issuer has not answered
                for a day (503).
        """
        if stored.key:
            return
        found = await self._store.get(stored.user, stored.tenant)
        if found is None or self._gateway.with_rights(found[0]) is None:
            raise OAuthError("invalid_grant", "the person may not go on here: sign in again")
        try:
            is_known = await self._check(*found)
        except _Silent:
            is_known = False
        if not is_known and found[0].usable_until < self._wall():
            raise _Silent

    async def run(self, ring: AuthorizationRing) -> None:
        """Ask again about the people whose tokens are used, until the task is cancelled.

        Each issuer is asked by a task of its own, so that one that hangs delays no other.
        """
        asking: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                await asyncio.sleep(EVERY)
                due: dict[str, list[StoredPerson]] = {}
                for person in ring.in_use():
                    if self._is_due(person):
                        due.setdefault(person.user.partition("#")[0], []).append(person)
                asking = {issuer: each for issuer, each in asking.items() if not each.done()}
                for issuer in due.keys() - asking.keys():
                    asking[issuer] = tasks.create_task(self._ask_about(due[issuer]))

    async def _ask_about(self, people: Sequence[StoredPerson]) -> None:
        """Ask one issuer about people, unless it does not answer."""
        waiting = iter(people)

        async def work() -> None:
            for person in waiting:
                found = await self._store.get(person.user, person.tenant)
                try:
                    if found is not None:
                        await self._check(*found)
                except _Silent:
                    return
                except OAuthError:  # the person may not go on; the next refresh says why
                    continue

        workers = [work() for _ in range(min(AT_ONCE, len(people)))]
        for failed in await asyncio.gather(*workers, return_exceptions=True):
            if failed is not None and not isinstance(failed, InterlockError):
                _log.error("people could not be asked about", exc_info=failed)

    def _is_due(self, person: StoredPerson) -> bool:
        return person.checked <= self._wall() - int(self._gateway.own.recheck * MICROS)

    async def _check(self, person: StoredPerson, refresh_token: str) -> bool:
        """Ask about a person if it is due; return False while another process does so."""
        # Without a refresh token, the person signs in again after a week at most.
        if not refresh_token or not self._is_due(person):
            return True
        if not await self._store.lease(person.user, person.tenant, self._process, self._wall()):
            return False
        # A caller that leaves must not lose the issuer's answer, which may replace the token.
        await asyncio.shield(aio.start_detached(self._ask(person, refresh_token)))
        return True

    async def _ask(self, person: StoredPerson, refresh_token: str) -> None:
        issuer, _, subject = person.user.partition("#")
        login = self._login(issuer)

        async def keep(token: str) -> None:
            await self._store.keep_token(person, token)

        try:
            answer = await login.ask_again(refresh_token, subject, keep)
        except InterlockError as error:
            if issuer not in self._silent:
                self._silent.add(issuer)
                _log.warning("%s cannot be asked about people: %s", issuer, error)
            raise _Silent from None
        self._silent.discard(issuer)
        if answer is not None:
            await self._store.renew(person, self.described(answer.principal), answer.refresh_token)
        elif await self._store.forget(person):
            await self._end_person(person, "issuer_refused")
            text = "your organisation has ended your login: sign in again"
            raise OAuthError("invalid_grant", text)

    def _login(self, issuer: str) -> OidcLogin:
        from interlock.gateway.logins.organisation_login import OidcLogin  # loads aiohttp

        found = issuer_of(self._gateway.issuers(), f"{issuer}#")
        if found is None:
            text = "the issuer that signed you in is not configured any more"
            raise OAuthError("invalid_grant", text)
        known = self._logins.get(issuer)
        if known is None or known.issuer != found:  # the configuration has changed
            known = self._logins[issuer] = OidcLogin(found, is_kept=True)
        return known


class _Silent(OAuthError):
    """The issuer does not answer."""

    def __init__(self) -> None:
        text = "the issuer has not answered for a day; try again later"
        super().__init__("temporarily_unavailable", text, 503)
