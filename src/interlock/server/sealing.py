"""Sealed text, which a client keeps for the server: it is bound to a request, and expires."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import struct
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from interlock.errors import InvalidArguments, MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEY_BYTES = 32
_MAC_BYTES = 32
_NONCE_BYTES = 12
_TTL = 3600.0  # seconds until sealed text expires


class Seal(ABC):
    """A way to seal content with a key, so that clients cannot change the content.

    Args:
        key: At least 32 bytes, the same in all processes of a server; None for a random key.
        ttl: Seconds until sealed text expires.
    """

    def __init__(self, key: bytes | None = None, ttl: float = _TTL) -> None:
        if key is not None and len(key) < _KEY_BYTES:
            raise ValueError(
                f"sealing key too short ({len(key)} bytes, at least {_KEY_BYTES} are required)"
            )
        self._key = key or os.urandom(_KEY_BYTES)
        self._ttl = ttl

    def close(self, content: bytes, bound_to: bytes) -> str:
        """Seal `content` as text; `bound_to` identifies the request and its principal."""
        dated = struct.pack(">d", time.time() + self._ttl) + content
        return base64.urlsafe_b64encode(self._protect(dated, bound_to)).decode()

    def open(self, text: str, bound_to: bytes) -> bytes:
        """Return the content of sealed text that was bound to `bound_to`.

        Raises:
            InvalidArguments: The text was changed, has expired, or is bound to another request.
        """
        try:
            raw = base64.b64decode(text, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise InvalidArguments("requestState is not from this server") from None
        dated = self._restore(raw, bound_to)
        if dated is None or len(dated) < 8:
            raise InvalidArguments("requestState was changed, or belongs to another request")
        if struct.unpack(">d", dated[:8])[0] < time.time():
            raise InvalidArguments("requestState has expired; start the request again")
        return dated[8:]

    @abstractmethod
    def _protect(self, content: bytes, bound_to: bytes) -> bytes: ...

    @abstractmethod
    def _restore(self, sealed: bytes, bound_to: bytes) -> bytes | None:
        """Return the content; None if it was changed or is bound to another request."""


class SigningSeal(Seal):
    """Signs content with HMAC-SHA256. Clients can read it, so it must contain only their data."""

    def _protect(self, content: bytes, bound_to: bytes) -> bytes:
        return self._mac(content, bound_to) + content

    def _restore(self, sealed: bytes, bound_to: bytes) -> bytes | None:
        mac, content = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
        return content if hmac.compare_digest(mac, self._mac(content, bound_to)) else None

    def _mac(self, content: bytes, bound_to: bytes) -> bytes:
        return hmac.digest(
            self._key, len(bound_to).to_bytes(8, "big") + bound_to + content, "sha256"
        )


class EncryptingSeal(Seal):
    """Encrypts content with AES-256-GCM, so it may contain data that clients must not read."""

    _made: AESGCM | None = None

    def _protect(self, content: bytes, bound_to: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, bound_to)

    def _restore(self, sealed: bytes, bound_to: bytes) -> bytes | None:
        cipher = self._cipher
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
        except (InvalidTag, ValueError):
            return None

    @property
    def _cipher(self) -> AESGCM:
        if self._made is None:
            try:
                from cryptography.hazmat.primitives.ciphers.aead import AESGCM
            except ModuleNotFoundError as error:
                raise MissingExtra("asking clients on behalf of servers", "serve") from error
            self._made = AESGCM(hashlib.sha256(self._key).digest())
        return self._made


def digest(*parts: bytes) -> bytes:
    """Hash a list of parts; different lists have different hashes, however they are split."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.digest()
