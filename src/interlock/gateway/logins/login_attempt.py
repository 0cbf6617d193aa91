"""Logins in progress, which browsers keep encrypted in cookies.

1. Only the browser that began a login can complete it, but any process of the gateway can. Nothing
   is stored for unfinished logins.
2. A process accepts each `state` only once; it remembers the last `MAX_USED` values. The
   authorization server accepts each code only once.
"""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections import OrderedDict
from collections.abc import Mapping
from hashlib import sha256
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import AuthError
from interlock.server.http.responses import Header
from interlock.text.redaction import Redacted
from interlock.text.timestamps import now_micros

LOGIN_TTL = 600  # seconds that a user has to complete a login
MAX_COOKIE = 4_096  # bytes of a whole cookie, which all browsers store (RFC 6265 section 6.1)
MAX_USED = 10_000  # used states that are remembered until they expire

_T = TypeVar("_T", bound=Struct)


class Attempt(Redacted, frozen=True):
    """The data that is needed to complete a login to the pages.

    Attributes:
        issuer: The issuer, as spelled in its metadata.
        redirect_uri: The URL of the callback.
        state: The state that the callback must contain.
        verifier: The PKCE verifier.
        nonce: The nonce that the ID token must contain.
        requires_iss: Whether the callback must also contain the issuer.
    """

    public = ("issuer", "redirect_uri")

    issuer: str
    redirect_uri: str
    state: str
    verifier: str
    nonce: str
    requires_iss: bool


class AttemptCookies(Generic[_T]):
    """Seals logins in cookies, and opens each of them once.

    Args:
        secret: The gateway's key, which encrypts the cookies.
        kind: The type of the content.
        purpose: The purpose of the logins, such as "login"; part of the cookies' names.
        path: The path of the callback, to which browsers send the cookies.
    """

    def __init__(self, secret: GatewayKey, kind: type[_T], purpose: str, path: str) -> None:
        self._secret = secret
        self._kind = kind
        self._purpose = purpose
        self._path = path
        self._used: OrderedDict[str, int] = OrderedDict()

    def sealed(self, state: str, content: _T, *, is_secure: bool) -> Header:
        """Return the header that stores a login in the browser.

        Raises:
            AuthError: The login is too large for a cookie.
        """
        expires = now_micros() + LOGIN_TTL * 1_000_000
        dated = expires.to_bytes(8, "big") + zlib.compress(msgspec.json.encode(content))
        value = urlsafe_b64encode(self._secret.seal(self._purpose, dated, state.encode()))
        header = self._header(state, value.decode().rstrip("="), LOGIN_TTL, is_secure)
        if (size := len(header[1])) > MAX_COOKIE:
            raise AuthError(
                f"the login does not fit in a cookie ({size:,} bytes, limit {MAX_COOKIE:,}):"
                " configure fewer scopes for it"
            )
        return header

    def deleted(self, state: str, *, is_secure: bool) -> Header:
        """Return the header that deletes a login in the browser."""
        return self._header(state, "", 0, is_secure)

    def opened(self, cookies: Mapping[str, str], state: str) -> _T:
        """Return the login of a callback.

        Raises:
            AuthError: The cookie is missing or invalid, has expired, or was used.
        """
        value = cookies.get(self._name(state), "")
        try:
            sealed = urlsafe_b64decode(value + "=" * (-len(value) % 4))
            dated = self._secret.unseal(self._purpose, sealed, state.encode()) or b""
        except (Base64Error, ValueError):
            raise unknown_login() from None
        expires = int.from_bytes(dated[:8], "big")
        if expires < now_micros() or state in self._used:
            raise unknown_login()
        return msgspec.json.decode(zlib.decompress(dated[8:]), type=self._kind)

    def use(self, state: str) -> None:
        """Refuse this state from now on."""
        now = now_micros()
        while self._used and next(iter(self._used.values())) < now:
            self._used.popitem(last=False)
        # drop the oldest, so that many logins cannot block new ones
        if len(self._used) >= MAX_USED:
            self._used.popitem(last=False)
        self._used[state] = now + LOGIN_TTL * 1_000_000

    def _name(self, state: str) -> str:
        return f"interlock-{self._purpose}-{sha256(state.encode()).hexdigest()[:16]}"

    def _header(self, state: str, value: str, seconds: int, is_secure: bool) -> Header:
        parts = [f"{self._name(state)}={value}", f"Path={self._path}", "HttpOnly"]
        parts += ["SameSite=Lax", *["Secure"] * is_secure, f"Max-Age={seconds}"]
        return b"set-cookie", "; ".join(parts).encode()


def unknown_login() -> AuthError:
    """Return the error for a callback whose login cannot be completed."""
    text = "this login has ended, or began in another browser; begin again in your usual browser"
    return AuthError(text, 400)
