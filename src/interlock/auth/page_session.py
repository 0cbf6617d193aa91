"""Sessions of the web pages. A session has two secret halves, and a request must send both.

1. One half is a cookie, which browsers send to every port of a host. The other half, the page key,
   is in the page's storage, which is separate for each port.
2. Only SHA-256 digests of both halves are stored. A session ends after 12 hours without a request,
   after 7 days (`gateway.keep.sessions`), when its API key ends, or when the user logs out.
3. A session never has more rights than its API key currently has.
4. Requests from pages of other origins are refused earlier; see `server.http.page_guard`.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from msgspec import Struct

from interlock.auth.api_key import API_KEY
from interlock.auth.authenticator import Authenticator, Headers, values_of
from interlock.auth.gateway_auth import RefusedCredential
from interlock.auth.key_format import digest
from interlock.auth.key_ring import KeyRing
from interlock.auth.principal import Principal
from interlock.auth.stored_key import TENANT
from interlock.errors import AuthRequired, AuthUnavailable, StoreError
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

PAGE_KEY = b"x-interlock-key"
MICROS = 1_000_000
IDLE = 12 * 3600 * MICROS  # microseconds without a request until a session ends
LONGEST = 7 * 86_400 * MICROS  # microseconds until a session ends, even if it is used
TOUCH_EVERY = 60 * MICROS  # microseconds between two updates of a session's last use
CODE_LIFETIME = 600 * MICROS  # microseconds that a one-time code is valid
MAX_COOKIES = 4  # cookies tried; other programs on the host may set a cookie of the same name
MAX_HALF = 100  # bytes of a half or a code; valid values have 43 or 22 bytes
MAX_KEPT = 1_000  # cached principals; reusing them lets a policy reuse its cached decisions


class StoredSession(Struct, frozen=True, kw_only=True):
    """A session in the store. Times are microseconds since 1970, UTC.

    Attributes:
        id_hash: SHA-256 of the cookie's value.
        page_key_hash: SHA-256 of the page key.
        user: The principal's id, such as "user:anna".
        key: The id of the API key that opened the session; "" if no key opened it.
        scopes: The session's scopes. If it has a key, the key's current scopes apply instead.
        view: The only view that the session may use; "" for all views.
        groups: The groups from the principal's token.
        claims: The claims from the principal's token.
        created: When the session was opened.
        last_used: When the session was last used, accurate to a minute.
        expires: When the session ends, even if it is used.
        tenant: The principal's tenant.
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
        """The session's id in lists, which reveals nothing about either half."""
        return self.id_hash.hex()[:16]

    @property
    def ends(self) -> int:
        """The time at which the session ends unless it is used again."""
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
    """A one-time code in the store: its SHA-256, the principal it logs in, its expiry and use."""

    hash: bytes
    user: str
    scopes: tuple[str, ...]
    expires: int
    tenant: str = TENANT
    used: bool = False


class SessionSource(Protocol):
    """Storage for sessions and one-time codes. Every method may raise a `StoreError`."""

    async def add(self, session: StoredSession) -> None: ...
    async def get(self, id_hash: bytes) -> StoredSession | None: ...
    async def touch(self, id_hash: bytes, now: int) -> None: ...
    async def delete(self, id_hash: bytes) -> None: ...
    async def of_user(self, user: str, tenant: str = TENANT) -> Sequence[StoredSession]: ...
    async def add_code(self, code: StoredCode) -> None: ...

    async def take_code(self, hash: bytes) -> StoredCode | None:
        """Mark a one-time code as used, and return it as it was before; None if it is unknown."""
        ...


class OpenedSession(Struct, frozen=True):
    """A new session with its two secrets, which are not stored.

    Attributes:
        cookie: The secret in the cookie.
        page_key: The secret that the page sends in a header.
        stored: The session in the store, with digests of both secrets.
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
        keys: The API keys that open sessions; None if no key opens a session.
        with_rights: Returns a user without an API key with the rights that the configuration gives
            now; None if the user may not use a session any more.
        keep: Returns the seconds after which a session ends, even if it is used.
        wall: The wall clock, in microseconds since 1970.
    """

    def __init__(
        self,
        source: SessionSource,
        keys: KeyRing | None = None,
        *,
        with_rights: Callable[[Principal], Principal | None] = lambda principal: principal,
        keep: Callable[[], float] = lambda: LONGEST / MICROS,
        wall: Callable[[], int] = now_micros,
    ) -> None:
        self._source = source
        self._keys = keys
        self._with_rights = with_rights
        self._keep = keep
        self._wall = wall
        # Owners of sessions that no key opened
        self._principals: OrderedDict[bytes, Principal] = OrderedDict()

    async def open(self, principal: Principal) -> OpenedSession:
        """Open a session for an authenticated caller.

        Raises:
            StoreError: The database is unavailable.
        """
        cookie, page_key, now = secrets.token_urlsafe(32), secrets.token_urlsafe(32), self._wall()
        stored = StoredSession(
            id_hash=digest(cookie),
            page_key_hash=digest(page_key),
            user=principal.id,
            key=principal.key_id,
            scopes=tuple(sorted(principal.scopes)),
            view=principal.view,
            groups=tuple(sorted(principal.groups)),
            claims=principal.claims,
            created=now,
            last_used=now,
            expires=now + int(self._keep() * MICROS),
            tenant=principal.tenant or TENANT,
        )
        await self._source.add(stored)
        return OpenedSession(cookie, page_key, stored)

    async def find(self, cookie: str, page_key: str) -> Principal | None:
        """Return the owner of an open session; None unless both halves belong to the session.

        Raises:
            AuthUnavailable: The database is unavailable.
        """
        with _verifying():
            return await self._find(cookie, page_key)

    async def exists(self, cookie: str) -> bool:
        """Return whether a session has this cookie, regardless of its page key.

        Raises:
            AuthUnavailable: The database is unavailable.
        """
        with _verifying():
            return len(cookie) <= MAX_HALF and bool(await self._source.get(digest(cookie)))

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
        stored = await self._source.get(digest(cookie))
        if stored is None or not hmac.compare_digest(stored.page_key_hash, digest(page_key)):
            return None
        return stored

    def _principal_of(self, stored: StoredSession) -> Principal | None:
        if stored.key:
            known = self._keys.by_id(stored.key) if self._keys is not None else None
            is_active = known is not None and self._keys is not None and self._keys.is_active(known)
            return known.principal if known is not None and is_active else None
        made = self._with_rights(principal_of(stored))
        if made is None:
            return None
        kept = self._principals.get(stored.id_hash)
        if kept == made:
            return kept
        self._principals[stored.id_hash] = made
        if len(self._principals) > MAX_KEPT:
            self._principals.popitem(last=False)
        return made

    async def close(self, cookie: str, page_key: str) -> None:
        """End the session that both halves belong to, if it exists.

        Raises:
            StoreError: The database is unavailable.
        """
        stored = await self._stored(cookie, page_key)
        if stored is not None:
            await self._source.delete(stored.id_hash)

    async def of(self, principal: Principal) -> list[StoredSession]:
        """Return the open sessions of a user, newest first.

        Raises:
            StoreError: The database is unavailable.
        """
        now = self._wall()
        found = await self._source.of_user(principal.id, principal.tenant or TENANT)
        return [each for each in found if each.ends > now]

    async def revoke(self, principal: Principal, id: str) -> bool:
        """End a user's session by its id; return whether it existed.

        Raises:
            StoreError: The database is unavailable.
        """
        for each in await self.of(principal):
            if each.id == id:
                await self._source.delete(each.id_hash)
                return True
        return False

    # One-time codes

    async def issue_code(self, principal: Principal) -> str:
        """Return a one-time code, valid for ten minutes, that opens a session for a principal.

        Raises:
            StoreError: The database is unavailable.
        """
        code = secrets.token_urlsafe(16)
        scopes = tuple(sorted(principal.scopes))
        expires = self._wall() + CODE_LIFETIME
        tenant = principal.tenant or TENANT
        await self._source.add_code(StoredCode(digest(code), principal.id, scopes, expires, tenant))
        return code

    async def redeem(self, code: str) -> Principal | None:
        """Return the principal that a one-time code logs in; None if it is unknown or expired.

        Raises:
            AuthRequired: The code was used before.
            StoreError: The database is unavailable.
        """
        if len(code) > MAX_HALF:
            return None
        found = await self._source.take_code(digest(code))
        if found is None or found.expires <= self._wall():
            return None
        if found.used:
            raise AuthRequired("this link was used before", 401, reason="code_used")
        tenant = "" if found.tenant == TENANT else found.tenant
        return Principal(found.user, frozenset(found.scopes), tenant=tenant)


class SessionCookie(Struct, frozen=True):
    """The cookie that transports the first half of a session.

    Attributes:
        name: The cookie's name.
        is_secure: Whether browsers send it over https only.
    """

    name: str
    is_secure: bool

    @classmethod
    def of(cls, *, is_local: bool, port: int, is_admin: bool = False) -> SessionCookie:
        """Return the cookie that a listener uses.

        Args:
            is_local: Whether the pages have an http URL on loopback.
            port: The port of the pages' URL.
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
        """Return the cookie's values in a request, at most `MAX_COOKIES`."""
        found = []
        for value in values_of(headers, b"cookie"):
            for pair in value.decode("latin-1").split(";"):
                name, _, text = pair.strip(" \t").partition("=")
                if name == self.name:
                    found.append(text)
        return found[:MAX_COOKIES]


class PageAuth:
    """Authenticates requests by a page session, or by the credential in a header.

    Args:
        cookie: The session cookie of this listener.
        keys: Authenticates `Authorization` and `X-API-Key` headers; None to accept sessions only.
        on_refused: Called for each refused session.
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
        """Return whether a request sends the page key of a session, valid or not."""
        return any(name == PAGE_KEY for name, _ in headers)

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """Return the principal that sent a request.

        A cookie without a page key is ignored: browsers send cookies with every request. A page
        that opens without a session, or after its session ended, is not reported as refused.

        Raises:
            AuthRequired: The credential is missing or invalid (401), or there are two (400).
            AuthUnavailable: The credential cannot be verified now (503).
            AuthError: The authenticator for headers refused the request.
        """
        has_header = any(name in (b"authorization", API_KEY) for name, _ in headers)
        if not self.is_session(headers):
            if self._keys is not None and has_header:
                return await self._keys.authenticate(headers, peer)
            text = "a session is required; log in first"
            raise AuthRequired(text, 401, self.challenge, reason="no_credential")
        page_keys = values_of(headers, PAGE_KEY)
        if has_header or len(page_keys) > 1:
            raise self._refused("two_credentials", peer)
        page_key = page_keys[0].decode("latin-1")
        cookies = self._cookie.values(headers)
        for cookie in cookies:
            principal = await self._sessions.find(cookie, page_key)
            if principal is not None:
                return principal
        for cookie in cookies:
            if await self._sessions.exists(cookie):
                raise self._refused("bad_credential", peer)
        raise self._invalid()

    def _refused(self, reason: str, peer: str | None) -> AuthRequired:
        self._on_refused(RefusedCredential(reason, peer or ""))
        if reason == "two_credentials":
            text = "more than one credential; send a key, a token or a session"
            return AuthRequired(text, 400, reason=reason)
        return self._invalid()

    def _invalid(self) -> AuthRequired:
        text = "the credential is not valid"
        return AuthRequired(text, 401, self.challenge, reason="bad_credential")


@contextmanager
def _verifying() -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise AuthUnavailable("sessions cannot be verified now; try again later") from None


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
