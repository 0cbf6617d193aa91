"""Verification of tokens from a gateway's trusted authorization servers.

A verified token is cached by its SHA-256 until it expires, for at most `REMEMBERED_FOR` seconds,
because verifying a signature takes a hundred times as long as a look-up.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from time import monotonic, time
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.principal import Principal
from interlock.auth.scopes import intersection, words_in
from interlock.auth.verifier import MAX_TOKEN_BYTES, Verify, verified

REMEMBERED_FOR = 60.0  # seconds that a verified token is cached
EVERYBODY = "*"  # in the scopes of groups: everybody whom the issuer names
OWN_CLAIMS = "interlock:"  # claims of the gateway itself; an issuer cannot state them
MAX_REMEMBERED = 10_000  # cached tokens; the least recently used token is evicted first


class TrustedIssuer(Struct, frozen=True):
    """A trusted issuer of tokens.

    Attributes:
        issuer: The exact value of `iss`.
        verify: Verifies the issuer's tokens; a `JwtVerifier`.
        groups: The claim that lists a user's groups; "" if tokens contain no groups.
        scopes: The scopes of each group; {} if the token's own scopes hold.
        name: The issuer's name, which also gives the groups "NAME/GROUP"; "" if it has none.
        is_only: Whether no other issuer gives groups, so that they need no name.
    """

    issuer: str
    verify: Verify
    groups: str = ""
    scopes: Mapping[str, tuple[str, ...]] = {}
    name: str = ""
    is_only: bool = True


class KnownToken(NamedTuple):
    """A verified token.

    Attributes:
        principal: The token's owner.
        in_views: The owner in each view; the authenticator fills this cache.
        until: When the token must be verified again, by the monotonic clock.
    """

    principal: Principal
    in_views: dict[str, Principal]
    until: float


class Issuers:
    """Verifies tokens from several issuers.

    Args:
        clock: The monotonic clock, in seconds.
        wall: The wall clock, in seconds since 1970.
    """

    def __init__(
        self,
        issuers: Sequence[TrustedIssuer],
        *,
        clock: Callable[[], float] = monotonic,
        wall: Callable[[], float] = time,
    ) -> None:
        self._issuers = {each.issuer: each for each in issuers}
        self._clock = clock
        self._wall = wall
        self._known: OrderedDict[bytes, KnownToken] = OrderedDict()

    @property
    def names(self) -> list[str]:
        return list(self._issuers)

    async def find(self, token: bytes) -> KnownToken | None:
        """Return a verified token; None if the token is not valid.

        Raises:
            AuthUnavailable: The token is not cached, and its issuer's keys cannot be fetched.
        """
        digest = sha256(token).digest()
        known = self._known.get(digest)
        if known is not None and self._clock() < known.until:
            self._known.move_to_end(digest)
            return known
        issuer = self._issuers.get(_payload_of(token).iss)
        principal = None if issuer is None else await verified(issuer.verify, token.decode())
        if issuer is None or principal is None:
            self._known.pop(digest, None)
            return None
        known = KnownToken(
            with_groups(
                principal,
                issuer.groups,
                issuer.scopes,
                name=issuer.name,
                is_only=issuer.is_only,
            ),
            {},
            self._clock() + self._rest(token),
        )
        self._known[digest] = known
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return known

    def _rest(self, token: bytes) -> float:
        """Return for how many seconds a verified token may be cached."""
        expires = _payload_of(token).exp
        return min(REMEMBERED_FOR, expires - self._wall())


def stated_issuer(token: bytes) -> str:
    """Return the issuer that a token names, before it is verified; "" if it names none."""
    return _payload_of(token).iss


def stated_subject(token: bytes) -> str:
    """Return the subject that a token names, before it is verified; "" if it names none."""
    return str(_payload_of(token).sub)


class _Payload(Struct):
    iss: str = ""
    sub: Any = ""
    exp: float = 0.0


def _payload_of(token: bytes) -> _Payload:
    """Return the unverified payload of a token, to choose the issuer that verifies it."""
    if len(token) > MAX_TOKEN_BYTES or token.count(b".") != 2:
        return _Payload()
    encoded = token.split(b".")[1]
    try:
        raw = base64.b64decode(encoded + b"=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=_Payload)
    except (ValueError, RecursionError):
        return _Payload()


def with_groups(
    principal: Principal,
    claim: str,
    scopes_of: Mapping[str, tuple[str, ...]],
    *,
    name: str = "",
    is_only: bool = True,
) -> Principal:
    """Return a principal with the groups of its token, and the scopes that it may have.

    If the operator has granted scopes to groups, the principal has the scopes of its groups. If the
    token also states scopes, the principal has only the granted scopes that the token includes, so
    the claim of the groups is the only claim that adds a right. Without such grants, the principal
    has the scopes of the token.

    Claims that only the gateway itself states are left out.

    Args:
        principal: The token's owner.
        claim: The claim that lists groups; "" if tokens contain no groups.
        scopes_of: The scopes of each group; those of "*" are for everybody.
        name: The issuer's name, which also gives the groups "NAME/GROUP"; "" if it has none.
        is_only: Whether no other issuer gives groups, so that they need no name.
    """
    groups = words_in(principal.claims.get(claim)) if claim else frozenset()
    scopes = principal.scopes
    if scopes_of:
        of = (*groups, EVERYBODY)
        granted = frozenset(scope for group in of for scope in scopes_of.get(group, ()))
        is_stated = "scope" in principal.claims or "scp" in principal.claims
        scopes = intersection(scopes, granted) if is_stated else granted
    named = frozenset(f"{name}/{group}" for group in groups if name)
    groups = groups | named if is_only else named
    told = principal.claims
    claims = {each: told[each] for each in told if not each.startswith(OWN_CLAIMS)}
    return replace(principal, groups=groups, scopes=scopes, claims=claims)
