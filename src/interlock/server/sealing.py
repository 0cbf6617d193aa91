"""Signed text that a client keeps for the server: bound to a request, and expiring."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import struct
import time

from interlock.errors import InvalidArguments

_MAC_BYTES = 32
_TTL = 3600.0  # seconds


class Seal:
    """Seals content with one key. Clients can read the content, but not change it.

    Args:
        key: At least 32 bytes, and the same for all processes of a server; random when None.
        ttl: Seconds until sealed text expires.
    """

    def __init__(self, key: bytes | None = None, ttl: float = _TTL) -> None:
        if key is not None and len(key) < 32:
            raise ValueError(f"sealing key too short ({len(key)} bytes, at least 32 are required)")
        self._key = key or os.urandom(32)
        self._ttl = ttl

    def close(self, content: bytes, bound_to: bytes) -> str:
        """Seal `content`; `bound_to` identifies the request and its principal."""
        sealed = struct.pack(">d", time.time() + self._ttl) + content
        return base64.urlsafe_b64encode(self._mac(sealed, bound_to) + sealed).decode()

    def open(self, text: str, bound_to: bytes) -> bytes:
        """Return the content of sealed text.

        Raises:
            InvalidArguments: It was changed, has expired, or is bound to something else.
        """
        try:
            raw = base64.b64decode(text, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise InvalidArguments("requestState is not from this server") from None
        mac, sealed = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(sealed, bound_to)) or len(sealed) < 8:
            raise InvalidArguments("requestState was changed, or belongs to another request")
        if struct.unpack(">d", sealed[:8])[0] < time.time():
            raise InvalidArguments("requestState has expired; start the request again")
        return sealed[8:]

    def _mac(self, sealed: bytes, bound_to: bytes) -> bytes:
        return hmac.digest(
            self._key, len(bound_to).to_bytes(8, "big") + bound_to + sealed, "sha256"
        )


def digest(*parts: bytes) -> bytes:
    """Hash a list of parts, so that different lists have different hashes."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.digest()
