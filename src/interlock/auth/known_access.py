"""Authorizations and access tokens in memory, as small as possible: there may be many."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from msgspec.structs import replace

from interlock.auth.access_token import AccessToken
from interlock.auth.principal import Principal
from interlock.auth.scopes import intersection
from interlock.auth.stored_authorization import StoredAuthorization, StoredPerson
from interlock.auth.stored_key import TENANT

CLIENT_CLAIM = "interlock:client"  # the verified host of the caller's client, for rules
MAX_RIGHTS = 8  # different rights of one authorization that are in memory
_MICROS = 1_000_000


class KnownAuthorization:
    """An authorization in memory, with its owner for each set of scopes that its tokens have."""

    __slots__ = ("of_key", "person", "principals", "stored", "tokens", "used", "written")

    def __init__(self, stored: StoredAuthorization, person: StoredPerson | None) -> None:
        self.stored = stored
        self.person = person
        self.of_key: Principal | None = None  # the owner of the key that signed in
        self.principals: list[Principal] = []
        self.tokens: list[bytes] = []  # the digests of its tokens in memory
        self.used: tuple[int, int] | None = None  # when, and by which generation
        self.written: tuple[int, int] | None = None  # the use that the database has

    def owner(self) -> Principal:
        """Return the person, with the rights that the person has now."""
        stored, claims = self.stored, {CLIENT_CLAIM: self.stored.verified}
        if self.of_key is not None:
            return replace(self.of_key, claims=claims)
        tenant = "" if stored.tenant == TENANT else stored.tenant
        if self.person is None:
            return Principal(stored.user, claims=claims, tenant=tenant)
        scopes, groups = set_of(self.person.scopes), set_of(self.person.groups)
        return Principal(stored.user, scopes, self.person.claims, groups=groups, tenant=tenant)

    def principal(self, token: AccessToken) -> Principal:
        """Return a token's owner; the same object for the same rights, as policies cache by it."""
        owner = self.owner()
        fresh = replace(
            owner,
            scopes=granted_set(token.scopes, owner.scopes),
            key_id=self.stored.id,
            view=token.view or owner.view,
            counts_as=self.stored.key or owner.owner,
        )
        for made in self.principals:
            if made == fresh:
                return made
        if len(self.principals) >= MAX_RIGHTS:
            self.principals.clear()
        self.principals.append(fresh)
        return fresh


class KnownAccess:
    """An access token in memory.

    Attributes:
        token: The content of the token.
        authorization: The authorization of the token.
        principal: The owner.
        in_views: The owner in each view; the authenticator fills this cache.
        admitted: The owner at each place that accepted the token; the authenticator fills it.
        expires: When the token must be checked again, in microseconds since 1970.
    """

    __slots__ = ("admitted", "authorization", "expires", "in_views", "principal", "token")

    def __init__(
        self, token: AccessToken, authorization: KnownAuthorization, principal: Principal
    ) -> None:
        self.token = token
        self.authorization = authorization
        self.principal = principal
        self.in_views: dict[str, Principal] = {}
        self.admitted: dict[Hashable, Principal] = {}
        self.expires = min(token.expires * _MICROS, authorization.stored.expires)
        if (person := authorization.person) is not None:
            self.expires = min(self.expires, person.usable_until)


# Most people have the same few scopes and groups, so memory has each set once.


@lru_cache(1_024)
def set_of(names: tuple[str, ...]) -> frozenset[str]:
    """Return names as a set, the same object for equal names."""
    return frozenset(names)


@lru_cache(1_024)
def granted_set(asked: tuple[str, ...], allowed: frozenset[str]) -> frozenset[str]:
    """Return the scopes of a token within those of its owner, the same object for equal ones."""
    return intersection(asked, allowed)
