"""The text of an API key: `ilk_ID_SECRETCHECK`.

The id identifies the key in lists and records. The check digits reveal a typing error, or a false
match in a secret scanner, without a look-up. Only the SHA-256 of the whole text is stored. A slow
hash would gain nothing, because 256 random bits cannot be guessed.
"""

from __future__ import annotations

import re
import secrets
from hashlib import sha256
from zlib import crc32

PREFIX = "ilk_"
ACCESS_PREFIX = "ilo_"  # of the front door's tokens; see `access_token`
# Without letters and digits that look alike, because people read ids aloud and type them.
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_ID_LENGTH = 12
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_LENGTH = 43  # 256 bits
_CHECK_LENGTH = 6  # 32 bits of CRC-32
_KEY = re.compile(rf"{PREFIX}([{_ID_LETTERS}]{{{_ID_LENGTH}}})_([0-9A-Za-z]{{49}})")


def generate() -> tuple[str, str]:
    """Return a new key and its id."""
    id = "".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH))
    secret = _base62(secrets.randbits(256), _SECRET_LENGTH)
    return f"{PREFIX}{id}_{secret}{_check(id, secret)}", id


def id_of(key: str) -> str | None:
    """Return the id in a key, or None if the text is not a well-formed key."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    id, rest = match.groups()
    secret, check = rest[:_SECRET_LENGTH], rest[_SECRET_LENGTH:]
    return id if check == _check(id, secret) else None


def digest(secret: str) -> bytes:
    """Return the digest of a secret, which is stored instead of the secret."""
    return sha256(secret.encode(errors="surrogateescape")).digest()


def _check(id: str, secret: str) -> str:
    return _base62(crc32(f"{id}_{secret}".encode()), _CHECK_LENGTH)


def _base62(number: int, length: int) -> str:
    digits = ""
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits
