"""The worker of a caller: the same one for each request with the same credential."""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterable
from hashlib import blake2b

import msgspec
from msgspec import Struct

MAX_HEAD = 64 * 1024  # bytes of a request's head that are looked at

_END = b"\r\n\r\n"
_CREDENTIALS = (
    re.compile(rb"\r\ncookie:[^\r\n]*?\b((?:__Host-)?interlock(?:-\d+)?=[^;\r\n]+)", re.IGNORECASE),
    re.compile(rb"\r\nauthorization:[ \t]*(?:bearer +)?([^\r\n]+)", re.IGNORECASE),
    re.compile(rb"\r\nx-api-key:[ \t]*([^\r\n]+)", re.IGNORECASE),
)
_JWT = re.compile(rb"[\w-]+\.([\w-]+)\.[\w-]*")


class _Claims(Struct):
    sub: str
    iss: str = ""


def is_enough(head: bytes) -> bool:
    """Return whether the part of a request contains its whole head."""
    return _END in head


def caller_of(head: bytes) -> bytes:
    """Return what tells a caller from others: a cookie of the pages, or a credential; else b"".

    Of a token, it is the subject, which stays when the token is refreshed. Nothing is verified
    here: with a wrong credential, a caller is only refused by another worker.
    """
    head = head.partition(_END)[0]
    for pattern in _CREDENTIALS:
        found = pattern.search(head)
        if found:
            credential = found[1].strip()
            return _subject(credential) or credential
    return b""


def place_of(caller: bytes, places: Iterable[int]) -> int:
    """Return the place of a caller; if a place goes, only its own callers move."""
    return max(places, key=lambda place: blake2b(b"%d %b" % (place, caller)).digest())


def _subject(credential: bytes) -> bytes:
    token = _JWT.fullmatch(credential)
    if token is None:
        return b""
    try:
        payload = urlsafe_b64decode(token[1] + b"=" * (-len(token[1]) % 4))
        claims = msgspec.json.decode(payload, type=_Claims)
    except (binascii.Error, ValueError, RecursionError):
        return b""
    return f"{claims.iss}#{claims.sub}".encode()
