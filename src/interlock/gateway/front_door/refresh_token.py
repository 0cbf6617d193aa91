"""Refresh tokens: `ilr_`, an authorization, a generation, and a keyed hash of both.

Nothing secret is stored. The hash also covers the authorization's salt, so an invented token is
refused without any effect, each older generation is recognised, and the same successor can be
answered again to a client that lost the answer.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Literal, NamedTuple

from interlock.auth.access_token import ID_BYTES
from interlock.auth.stored_authorization import StoredAuthorization

PREFIX = "ilr_"
GRACE = 120 * 1_000_000  # microseconds after a rotation in which the token before is answered
_GENERATION_BYTES, _MAC_BYTES = 4, 16

Verdict = Literal["rotate", "same", "reused", "unknown"]


class RefreshToken(NamedTuple):
    """The readable content of a refresh token, and the keyed hash that proves it."""

    authorization: str
    generation: int
    mac: bytes

    @classmethod
    def read(cls, text: str) -> RefreshToken | None:
        """Return the content of a token that is not yet verified; None if it is malformed."""
        encoded = text.removeprefix(PREFIX)
        try:
            raw = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        except (Base64Error, ValueError):
            return None
        if encoded == text or len(raw) != ID_BYTES + _GENERATION_BYTES + _MAC_BYTES:
            return None
        id = urlsafe_b64encode(raw[:ID_BYTES]).decode()
        end = ID_BYTES + _GENERATION_BYTES
        return cls(id, int.from_bytes(raw[ID_BYTES:end], "big"), raw[end:])

    def is_of(self, stored: StoredAuthorization, key: bytes) -> bool:
        """Return whether this gateway made the token for an authorization."""
        return hmac.compare_digest(self.mac, _mac(stored, self.generation, key))


def refresh_token(stored: StoredAuthorization, generation: int, key: bytes) -> str:
    """Return the text of the refresh token of a generation.

    Args:
        stored: The authorization.
        generation: How often the token was replaced before.
        key: The gateway's key for refresh tokens.
    """
    content = urlsafe_b64decode(stored.id) + generation.to_bytes(_GENERATION_BYTES, "big")
    return PREFIX + urlsafe_b64encode(content + _mac(stored, generation, key)).decode().rstrip("=")


def _mac(stored: StoredAuthorization, generation: int, key: bytes) -> bytes:
    message = b"%b %d %b" % (stored.id.encode(), generation, stored.salt)
    return hmac.digest(key, message, "sha256")[:_MAC_BYTES]


def verdict(stored: StoredAuthorization, generation: int, now: int) -> Verdict:
    """Return what a genuine refresh token of a generation leads to.

    The token before the current one is answered with the same successor, as the answer may have
    been lost or several processes may have asked at once: for `GRACE`, and later only if nobody has
    used the current generation. Everything older was stolen, or is used by two.
    """
    if stored.proven:
        return "same"
    if generation == stored.generation:
        return "rotate"
    if generation != stored.generation - 1:
        return "reused" if generation < stored.generation else "unknown"
    is_lost = now - stored.rotated <= GRACE or stored.seen < stored.generation
    return "same" if is_lost else "reused"
