"""Asks issuers again about people: whether they may go on, and with which groups and scopes.

1. A person is asked about when the issuer's last word is older than `auth.oauth.recheck`, before a
   refresh token is answered, and while tokens are used.
2. If the issuer refuses, all that the person has allowed ends, and so do the person's sessions.
3. If the issuer does not answer, nothing changes for a day after its last word.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from interlock import aio
from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.principal import Principal
from interlock.auth.stored_authorization import StoredAuthorization, StoredPerson
from interlock.auth.stored_key import TENANT
from interlock.config.gateway import Issuer
from interlock.errors import InterlockError
from interlock.gateway.front_door.request import OAuthError
from interlock.store.signed_in import SignedInStore
from interlock.text.timestamps import now_micros

if TYPE_CHECKING:
    from interlock.gateway.logins.organisation_login import OidcLogin, SignedIn

EVERY = 10.0  # seconds between two looks at the people whose tokens are used
USABLE = 86_400.0  # seconds after an issuer's last word in which it need not answer
MICROS = 1_000_000
_log = logging.getLogger("interlock.gateway")


class Rechecks:
    """Asks issuers again about people.

    Args:
        store: The people whom issuers have described.
        issuers: Returns the issuers that people can log in at.
        age: Returns the age in seconds at which an issuer's word is too old.
        end_person: Ends all that a person has allowed, given the person and the reason.
        wall: The wall clock, in microseconds since 1970.
    """

    def __init__(
        self,
        store: SignedInStore,
        issuers: Callable[[], Sequence[Issuer]],
        age: Callable[[], float],
        end_person: Callable[[StoredPerson, str], Awaitable[None]],
        wall: Callable[[], int] = now_micros,
    ) -> None:
        self._store = store
        self._issuers = issuers
        self._age = age
        self._end_person = end_person
        self._wall = wall
        self._process = secrets.token_hex(8)
        self._logins: dict[str, OidcLogin] = {}

    async def signed_in(self, signed_in: SignedIn) -> None:
        """Store a person who has just logged in at an issuer.

        Raises:
            StoreError: The person cannot be stored.
        """
        await self._store.put(
            stored_person(signed_in.principal, self._wall()), signed_in.refresh_token
        )

    async def check(self, stored: StoredAuthorization) -> None:
        """Ask about the person of an authorization, if the issuer's last word is too old.

        Raises:
            OAuthError: The person may not go on (`invalid_grant`), or the issuer has not answered
                for a day (503).
        """
        if stored.key:
            return
        found = await self._store.get(stored.user, stored.tenant)
        if found is None:
            raise OAuthError("invalid_grant", "the person is not known any more: sign in again")
        await self._check(*found)

    async def run(self, ring: AuthorizationRing) -> None:
        """Ask again about the people whose tokens are used, until the task is cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            oldest = self._wall() - int(self._age() * MICROS)
            for person in ring.in_use():
                if person.checked > oldest:
                    continue
                with suppress(InterlockError):  # the next refresh says what is wrong
                    found = await self._store.get(person.user, person.tenant)
                    if found is not None:
                        await self._check(*found)

    async def _check(self, person: StoredPerson, refresh_token: str) -> None:
        now = self._wall()
        age = (now - person.checked) / MICROS
        # Without a refresh token, the person signs in again after a week at most.
        if age < self._age() or not refresh_token:
            return
        if await self._store.lease(person.user, person.tenant, self._process, now):
            # A caller that leaves must not lose the issuer's answer, which may replace the token.
            await asyncio.shield(aio.start_detached(self._ask(person, refresh_token, age)))
        elif age > USABLE:  # another process is asking
            raise _no_word()

    async def _ask(self, person: StoredPerson, refresh_token: str, age: float) -> None:
        issuer, _, subject = person.user.partition("#")

        async def keep(token: str) -> None:
            await self._store.keep_token(person.user, person.tenant, token)

        try:
            answer = await self._login(issuer).ask_again(refresh_token, subject, keep)
        except InterlockError as error:
            _log.warning("%s cannot be asked about a person: %s", issuer, error)
            if age > USABLE:
                raise _no_word() from None
            return
        if answer is None:
            await self._store.forget(person.user, person.tenant)
            await self._end_person(person, "issuer_refused")
            text = "your organisation has ended your login: sign in again"
            raise OAuthError("invalid_grant", text)
        await self.signed_in(answer)

    def _login(self, issuer: str) -> OidcLogin:
        from interlock.gateway.logins.organisation_login import OidcLogin  # loads aiohttp

        found = next((each for each in self._issuers() if each.issuer == issuer), None)
        if found is None:
            text = "the issuer that signed you in is not configured any more"
            raise OAuthError("invalid_grant", text)
        known = self._logins.get(issuer)
        if known is None or known.issuer != found:  # the configuration has changed
            known = self._logins[issuer] = OidcLogin(found, is_kept=True)
        return known


def _no_word() -> OAuthError:
    text = "the issuer has not answered for a day; try again later"
    return OAuthError("temporarily_unavailable", text, 503)


def stored_person(principal: Principal, now: int) -> StoredPerson:
    """Return a person as it is stored."""
    return StoredPerson(
        user=principal.id,
        scopes=tuple(sorted(principal.scopes)),
        groups=tuple(sorted(principal.groups)),
        claims=principal.claims,
        checked=now,
        tenant=principal.tenant or TENANT,
    )
