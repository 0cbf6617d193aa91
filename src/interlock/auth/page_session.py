"""Sessions of the web pages. A session has two halves, and a request needs both.

1. Browsers send the cookie to every port of a host. The page key is in the page's own storage,
   which is separate for each port. Neither of them is valid alone.
2. Only SHA-256 digests of both are stored. A session ends after 12 hours without a request, after
   7 days, with its API key, or when it is closed.
3. A session never has more rights than its API key has now.
4. A page of another origin is refused before any of this; see `server.http.page_guard`.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Protocol

from msgspec import Struct

from interlock.auth.api_key import API_KEY
from interlock.auth.authenticator import Authenticator, Headers, values_of
from interlock.auth.gateway_auth import RefusedCredential
from interlock.auth.key_ring import KeyRing
from interlock.auth.principal import Principal
from interlock.auth.stored_key import TENANT
from interlock.errors import AuthRequired, AuthUnavailable, StoreError
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

PAGE_KEY = b"x-interlock-key"
MICROS = 1_000_000
IDLE = 12 * 3600 * MICROS  # microseconds without a request until a session ends
LONGEST = 7 * 86_400 * MICROS  # microseconds until a session ends in any case
TOUCH_EVERY = 60 * MICROS  # microseconds between two writes of the last use
CODE_LIFETIME = 600 * MICROS  # microseconds that a one-time code is valid
MAX_COOKIES = 4  # values tried for one name: other programs on the host may set the same name
MAX_HALF = 100  # bytes of a half or a code; real ones have 43 or 22
MAX_KEPT = 1_000  # cached principals, because a policy caches its decisions by them


class StoredSession(Struct, frozen=True, kw_only=True):
    """A session as it is stored. Times are microseconds since 1970, UTC.

    Attributes:
        id_hash: SHA-256 of the cookie's value.
        page_key_hash: SHA-256 of the page key.
        user: Id of the principal, such as "user:anna".
        key: Id of the API key that opened it; "" for none.
        scopes: The scopes of the session. With a key, the key's present scopes count instead.
        view: The view that it is bound to; "" for all.
        groups: The groups of the principal's token.
        claims: The claims of the principal's token.
        created: The time of opening.
        last_used: The time of the last use, to the minute.
        expires: The time at which it ends in any case.
        tenant: The tenant of the principal.
    """

    id_hash: bytes
    page_key_hash: bytes
    user: str
    key: str = ""
    scopes: tuple[str, ...] = ()
    view: str = ""
    groups: tuple[str, ...] = ()
    claims: JsonObject = {}
    created: int = 0
    last_used: int = 0
    expires: int = 0
    tenant: str = TENANT

    @property
    def id(self) -> str:
        """The id of the session in lists. It reveals nothing about either half."""
        return self.id_hash.hex()[:16]

    @property
    def ends(self) -> int:
        """The time at which the session ends unless it is used before."""
        return min(self.expires, self.last_used + IDLE)

    def as_json(self) -> JsonObject:
        return {
            "id": self.id,
            "user": self.user,
            "key": self.key or None,
            "scopes": list(self.scopes),
            "created": rfc3339(self.created),
            "lastUsed": rfc3339(self.last_used),
            "expires": rfc3339(self.ends),
        }


class StoredCode(Struct, frozen=True):
    """A stored one-time code: its SHA-256, the session that it opens, and its expiry."""

    hash: bytes
    user: str
    scopes: tuple[str, ...]
    expires: int
    tenant: str = TENANT


class SessionSource(Protocol):
    """Storage for sessions and one-time codes. Every method may raise a `StoreError`."""

    async def add(self, session: StoredSession) -> None: ...
    async def get(self, id_hash: bytes) -> StoredSession | None: ...
    async def touch(self, id_hash: bytes, now: int) -> None: ...
    async def delete(self, id_hash: bytes) -> None: ...
    async def of_user(self, user: str, tenant: str = TENANT) -> Sequence[StoredSession]: ...
    async def add_code(self, code: StoredCode) -> None: ...

    async def take_code(self, hash: bytes) -> StoredCode | None:
        """Delete a one-time code and return it; None if it is unknown."""
        ...


class OpenedSession(Struct, frozen=True):
    """A new session with its two secrets, of which only digests are stored.

    Attributes:
        cookie: The secret in the cookie.
        page_key: The secret that the page sends in a header.
        stored: The record in the store.
    """

    cookie: str
    page_key: str
    stored: StoredSession

    def __repr__(self) -> str:
        return f"OpenedSession({self.stored.id!r})"


class PageSessions:
    """Opens, finds and ends sessions.

    Args:
        source: The storage of sessions.
        keys: The API keys that sessions depend on; None where no key opens a session.
        is_trusted: Returns whether a user whom no key identifies may still use a session.
        wall: The wall clock, in microseconds since 1970.
    """

    def __init__(
        self,
        source: SessionSource,
        keys: KeyRing | None = None,
        *,
        is_trusted: Callable[[str], bool] = lambda _: True,
        wall: Callable[[], int] = now_micros,
    ) -> None:
        self._source = source
        self._keys = keys
        self._is_trusted = is_trusted
        self._wall = wall
        # Owners of sessions without key
        self._principals: OrderedDict[bytes, Principal] = OrderedDict()

    async def open(self, principal: Principal) -> OpenedSession:
        """Open a session for a caller whose credential was verified.

        Raises:
            StoreError: The database does not answer.
        """
        cookie, page_key, now = secrets.token_urlsafe(32), secrets.token_urlsafe(32), self._wall()
        stored = StoredSession(
            id_hash=_digest(cookie),
            page_key_hash=_digest(page_key),
            user=principal.id,
            key=principal.key_id,
            scopes=tuple(sorted(principal.scopes)),
            view=principal.view,
            groups=tuple(sorted(principal.groups)),
            claims=principal.claims,
            created=now,
            last_used=now,
            expires=now + LONGEST,
            tenant=principal.tenant or TENANT,
        )
        await self._source.add(stored)
        return OpenedSession(cookie, page_key, stored)

    async def find(self, cookie: str, page_key: str) -> Principal | None:
        """Return the owner of an open session; None unless both halves belong to it.

        Raises:
            AuthUnavailable: The database does not answer.
        """
        try:
            return await self._find(cookie, page_key)
        except StoreError:
            raise AuthUnavailable("sessions cannot be verified now; try again later") from None

    async def _find(self, cookie: str, page_key: str) -> Principal | None:
        stored = await self._stored(cookie, page_key)
        if stored is None:
            return None
        now = self._wall()
        if stored.ends <= now:
            await self._source.delete(stored.id_hash)
            return None
        principal = self._principal_of(stored)
        if principal is not None and now - stored.last_used >= TOUCH_EVERY:
            await self._source.touch(stored.id_hash, now)
        return principal

    async def _stored(self, cookie: str, page_key: str) -> StoredSession | None:
        if len(cookie) > MAX_HALF or len(page_key) > MAX_HALF:
            return None
        stored = await self._source.get(_digest(cookie))
        if stored is None or not hmac.compare_digest(stored.page_key_hash, _digest(page_key)):
            return None
        return stored

    def _principal_of(self, stored: StoredSession) -> Principal | None:
        if stored.key:
            known = self._keys.by_id(stored.key) if self._keys is not None else None
            is_active = known is not None and self._keys is not None and self._keys.is_active(known)
            return known.principal if known is not None and is_active else None
        if not self._is_trusted(stored.user):
            return None
        made = principal_of(stored)
        kept = self._principals.get(stored.id_hash)
        if kept == made:
            return kept
        self._principals[stored.id_hash] = made
        if len(self._principals) > MAX_KEPT:
            self._principals.popitem(last=False)
        return made

    async def close(self, cookie: str, page_key: str) -> None:
        """End the session that both halves belong to, if there is one.

        Raises:
            StoreError: The database does not answer.
        """
        stored = await self._stored(cookie, page_key)
        if stored is not None:
            await self._source.delete(stored.id_hash)

    async def of(self, principal: Principal) -> list[StoredSession]:
        """Return the open sessions of a user, newest first.

        Raises:
            StoreError: The database does not answer.
        """
        now = self._wall()
        found = await self._source.of_user(principal.id, principal.tenant or TENANT)
        return [each for each in found if each.ends > now]

    async def revoke(self, principal: Principal, id: str) -> bool:
        """End a session of a user by its id; return whether there was one.

        Raises:
            StoreError: The database does not answer.
        """
        for each in await self.of(principal):
            if each.id == id:
                await self._source.delete(each.id_hash)
                return True
        return False

    # One-time codes

    async def issue_code(self, principal: Principal) -> str:
        """Return a code that opens one session of a principal, once, within ten minutes.

        Raises:
            StoreError: The database does not answer.
        """
        code = secrets.token_urlsafe(16)
        scopes = tuple(sorted(principal.scopes))
        expires = self._wall() + CODE_LIFETIME
        tenant = principal.tenant or TENANT
        await self._source.add_code(
            StoredCode(_digest(code), principal.id, scopes, expires, tenant)
        )
        return code

    async def redeem(self, code: str) -> Principal | None:
        """Return the principal of a one-time code; None if it is unknown, used or expired.

        Raises:
            StoreError: The database does not answer.
        """
        if len(code) > MAX_HALF:
            return None
        found = await self._source.take_code(_digest(code))
        if found is None or found.expires <= self._wall():
            return None
        tenant = "" if found.tenant == TENANT else found.tenant
        return Principal(found.user, frozenset(found.scopes), tenant=tenant)


class SessionCookie(Struct, frozen=True):
    """The cookie of sessions.

    Attributes:
        name: The cookie's name.
        is_secure: Whether browsers send it over https only.
    """

    name: str
    is_secure: bool

    @classmethod
    def of(cls, *, is_local: bool, port: int, is_admin: bool = False) -> SessionCookie:
        """Return the cookie of a listener.

        Args:
            is_local: Whether the pages are at an http URL on loopback.
            port: The port of the listener.
            is_admin: Whether the listener is for operators only.
        """
        if is_local:
            return cls(f"interlock-{port}", False)
        return cls("__Host-interlock-admin" if is_admin else "__Host-interlock", True)

    def header(self, value: str, max_age: int = LONGEST // MICROS) -> tuple[bytes, bytes]:
        """Return the header that sets the cookie; a `max_age` of 0 deletes it."""
        parts = [f"{self.name}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
        parts += ["Secure"] * self.is_secure + [f"Max-Age={max_age}"]
        return b"set-cookie", "; ".join(parts).encode()

    def values(self, headers: Headers) -> list[str]:
        """Return the values that a request sends, at most `MAX_COOKIES` of them."""
        found = []
        for value in values_of(headers, b"cookie"):
            for pair in value.decode("latin-1").split(";"):
                name, _, text = pair.strip(" \t").partition("=")
                if name == self.name:
                    found.append(text)
        return found[:MAX_COOKIES]


class PageAuth:
    """Identifies callers by a session, or by the credential in a header.

    Args:
        sessions: The sessions.
        cookie: The session cookie of this listener.
        keys: Identifies callers by `Authorization` or `X-API-Key`; None: sessions only.
        on_refused: Called for each session that is refused.
    """

    def __init__(
        self,
        sessions: PageSessions,
        cookie: SessionCookie,
        keys: Authenticator | None = None,
        *,
        on_refused: Callable[[RefusedCredential], None] = lambda _: None,
    ) -> None:
        self._sessions = sessions
        self._cookie = cookie
        self._keys = keys
        self._on_refused = on_refused

    @property
    def challenge(self) -> str:
        return self._keys.challenge if self._keys is not None else ""

    def published(self, path: str) -> bytes | None:
        return self._keys.published(path) if self._keys is not None else None

    @staticmethod
    def is_session(headers: Headers) -> bool:
        """Return whether a request uses a page's session, valid or not."""
        return any(name == PAGE_KEY for name, _ in headers)

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """Return the sender of a request.

        A cookie without a page key is ignored: browsers send cookies with every request.

        Raises:
            AuthRequired: 401; the credential is missing or not valid. 400; there are two.
            AuthUnavailable: 503; the credential cannot be verified now.
            AuthError: The authenticator of keys refused the request.
        """
        has_header = any(name in (b"authorization", API_KEY) for name, _ in headers)
        if not self.is_session(headers):
            if self._keys is not None:
                return await self._keys.authenticate(headers, peer)
            raise self._refused("no_credential", peer)
        page_keys = values_of(headers, PAGE_KEY)
        if has_header or len(page_keys) > 1:
            raise self._refused("two_credentials", peer)
        page_key = page_keys[0].decode("latin-1")
        for cookie in self._cookie.values(headers):
            principal = await self._sessions.find(cookie, page_key)
            if principal is not None:
                return principal
        raise self._refused("bad_credential", peer)

    def _refused(self, reason: str, peer: str | None) -> AuthRequired:
        self._on_refused(RefusedCredential(reason, peer or ""))
        if reason == "two_credentials":
            text = "more than one credential; send a key, a token or a session"
            return AuthRequired(text, 400, reason=reason)
        if reason == "no_credential":
            text = "a session is required; log in first"
            return AuthRequired(text, 401, self.challenge, reason=reason)
        text = "the credential is not valid"
        return AuthRequired(text, 401, self.challenge, reason=reason)


def principal_of(stored: StoredSession) -> Principal:
    """Return the owner of a session that no API key opened."""
    return Principal(
        stored.user,
        frozenset(stored.scopes),
        stored.claims,
        groups=frozenset(stored.groups),
        tenant="" if stored.tenant == TENANT else stored.tenant,
        view=stored.view,
    )


def _digest(half: str) -> bytes:
    return sha256(half.encode(errors="surrogateescape")).digest()
