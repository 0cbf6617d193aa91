"""Verification of tokens from the authorization servers that a gateway trusts.

A verified token is cached by its SHA-256 for `REMEMBERED_FOR` seconds at most, and never beyond
its expiry: verifying a signature costs a hundred times as much as a look-up.
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
from interlock.auth.verifier import MAX_TOKEN_BYTES, Verify, verified

REMEMBERED_FOR = 60.0  # seconds
MAX_REMEMBERED = 10_000  # cached tokens; beyond it the least recently used one is evicted


class TrustedIssuer(Struct, frozen=True):
    """An issuer whose tokens are accepted.

    Attributes:
        issuer: The exact value of `iss`.
        verify: Verifies its tokens: a `JwtVerifier`.
        groups: The claim that lists the groups of a user; "" for none.
        scopes: Scopes by group, for tokens that carry none.
    """

    issuer: str
    verify: Verify
    groups: str = ""
    scopes: Mapping[str, tuple[str, ...]] = {}


class KnownToken(NamedTuple):
    """A verified token.

    Attributes:
        principal: The owner of the token.
        in_views: The owner as seen in each view; filled by the authenticator.
        until: The time to verify it again, by the monotonic clock.
    """

    principal: Principal
    in_views: dict[str, Principal]
    until: float


class Issuers:
    """Verifies tokens of several issuers.

    Args:
        issuers: The trusted issuers.
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
        """Return a valid token; None if it is not valid.

        Raises:
            AuthUnavailable: The token is not cached, and the issuer's keys cannot be fetched.
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
            with_groups(principal, issuer.groups, issuer.scopes),
            {},
            self._clock() + self._rest(token),
        )
        self._known[digest] = known
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return known

    def _rest(self, token: bytes) -> float:
        """Return the seconds for which a valid token may be cached."""
        expires = _payload_of(token).exp
        return min(REMEMBERED_FOR, expires - self._wall())


class _Payload(Struct):
    iss: str = ""
    exp: float = 0.0


def _payload_of(token: bytes) -> _Payload:
    """Return the payload of an unverified token, to choose the verifier."""
    if len(token) > MAX_TOKEN_BYTES or token.count(b".") != 2:
        return _Payload()
    encoded = token.split(b".")[1]
    try:
        raw = base64.b64decode(encoded + b"=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=_Payload)
    except (ValueError, RecursionError):
        return _Payload()


def with_groups(
    principal: Principal, claim: str, scopes_of: Mapping[str, tuple[str, ...]]
) -> Principal:
    """Add the groups of a token to its principal, and their scopes if the token has none.

    Args:
        principal: The owner of the token.
        claim: The claim that lists groups; "" for none.
        scopes_of: Scopes by group.
    """
    groups = _words(principal.claims.get(claim)) if claim else frozenset()
    scopes = principal.scopes
    if not scopes and "scope" not in principal.claims and "scp" not in principal.claims:
        scopes = frozenset(scope for group in groups for scope in scopes_of.get(group, ()))
    return replace(principal, groups=groups, scopes=scopes)


def _words(claim: Any) -> frozenset[str]:
    if isinstance(claim, str):
        return frozenset(claim.split())
    if isinstance(claim, list):
        return frozenset(each for each in claim if isinstance(each, str))
    return frozenset()
