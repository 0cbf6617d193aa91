"""Sessions of pages: two halves, each worthless alone, and no longer than their key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.auth import Principal
from interlock.auth.gateway_auth import GatewayAuth, RefusedCredential
from interlock.auth.key_ring import KeyRing
from interlock.auth.page_session import (
    CODE_LIFETIME,
    IDLE,
    LONGEST,
    TOUCH_EVERY,
    OpenedSession,
    PageAuth,
    PageSessions,
    SessionCookie,
    StoredCode,
    StoredSession,
)
from interlock.auth.stored_key import TENANT
from interlock.errors import AuthRequired, AuthUnavailable, StoreError
from tests.auth.test_key_ring import NOW, Clocks, Source, made
from tests.support.rows import each_row

COOKIE = SessionCookie.of(is_local=True, port=8080)
ANNA = Principal("user:anna", frozenset({"mcp:*"}))


class Stored:
    """Sessions and codes in memory, or in a database that does not answer."""

    def __init__(self) -> None:
        self.sessions: dict[bytes, StoredSession] = {}
        self.codes: dict[bytes, StoredCode] = {}
        self.fails = False

    async def add(self, session: StoredSession) -> None:
        self.sessions[session.id_hash] = session

    async def get(self, id_hash: bytes) -> StoredSession | None:
        if self.fails:
            raise StoreError("the database is away")
        return self.sessions.get(id_hash)

    async def touch(self, id_hash: bytes, now: int) -> None:
        self.sessions[id_hash] = replace(self.sessions[id_hash], last_used=now)

    async def delete(self, id_hash: bytes) -> None:
        self.sessions.pop(id_hash, None)

    async def of_user(self, user: str, tenant: str = TENANT) -> Sequence[StoredSession]:
        return [
            each for each in self.sessions.values() if (each.user, each.tenant) == (user, tenant)
        ]

    async def add_code(self, code: StoredCode) -> None:
        self.codes[code.hash] = code

    async def take_code(self, hash: bytes) -> StoredCode | None:
        found = self.codes.get(hash)
        if found is not None:
            self.codes[hash] = replace(found, used=True)
        return found


class Site:
    """A listener with sessions, beside API keys, under a clock that a test moves."""

    def __init__(self, *keys: Any) -> None:
        self.now = NOW
        self.stored = Stored()
        self.source = Source(*keys)
        self.ring = KeyRing(self.source, clock=Clocks().clock, wall=lambda: self.now * 1_000)
        self.sessions = PageSessions(self.stored, self.ring, wall=lambda: self.now)
        self.refused: list[RefusedCredential] = []
        gate = GatewayAuth(self.ring, resource="http://127.0.0.1:8080/mcp")
        self.auth = PageAuth(self.sessions, COOKIE, gate, on_refused=self.refused.append)

    async def find(self, opened: OpenedSession) -> Principal | None:
        return await self.sessions.find(opened.cookie, opened.page_key)

    async def status(self, *headers: tuple[bytes, bytes]) -> int:
        """Return 200, or the status of the refusal."""
        await self.ring.refresh()
        try:
            await self.auth.authenticate(headers, "127.0.0.1")
        except AuthRequired as error:
            return error.status
        return 200


def halves(opened: OpenedSession) -> tuple[tuple[bytes, bytes], tuple[bytes, bytes]]:
    return (
        (b"cookie", f"other=1; {COOKIE.name}={opened.cookie}".encode()),
        (b"x-interlock-key", opened.page_key.encode()),
    )


async def test_session_needs_the_cookie_and_the_page_key():
    site = Site()
    opened, other = await site.sessions.open(ANNA), await site.sessions.open(ANNA)
    cookie, page_key = halves(opened)
    _, foreign_key = halves(other)

    assert await site.status(cookie, page_key) == 200
    for wrong in ([cookie], [page_key], [cookie, foreign_key], [cookie, (b"x-interlock-key", b"")]):
        assert await site.status(*wrong) == 401, wrong
    assert await site.status(cookie, page_key, page_key) == 400
    assert await site.status(cookie, page_key, (b"x-api-key", b"x")) == 400


async def test_planted_cookie_of_the_same_name_does_not_end_a_session():
    site = Site()
    opened = await site.sessions.open(ANNA)
    cookie, page_key = halves(opened)

    assert await site.status((b"cookie", f"{COOKIE.name}=x".encode()), cookie, page_key) == 200


async def test_key_in_a_header_is_accepted_beside_a_cookie():
    stored, key = made(scopes=("mcp:*",))
    site = Site(stored)
    cookie, _ = halves(await site.sessions.open(ANNA))

    assert await site.status(cookie, (b"x-api-key", key)) == 200
    assert await site.status(cookie, (b"x-api-key", b"x")) == 401


async def test_stored_session_contains_neither_the_cookie_nor_the_page_key():
    site = Site()
    opened = await site.sessions.open(ANNA)

    (stored,) = site.stored.sessions.values()
    for shown in (repr(stored), str(stored.as_json()), repr(opened)):
        assert opened.cookie not in shown
        assert opened.page_key not in shown


@each_row(("every", "ends_after"), [(IDLE, IDLE), (IDLE - 1, LONGEST)])
async def test_session_ends_when_idle_and_at_the_latest_after_seven_days(every, ends_after):
    site = Site()
    opened = await site.sessions.open(ANNA)

    while await site.find(opened):
        site.now += every

    assert ends_after <= site.now - NOW < ends_after + every


async def test_last_use_is_written_once_a_minute():
    site = Site()
    opened = await site.sessions.open(ANNA)
    used = []
    for _ in range(4):
        site.now += TOUCH_EVERY // 2
        await site.find(opened)
        used.append(site.stored.sessions[opened.stored.id_hash].last_used - NOW)

    assert used == [0, TOUCH_EVERY, TOUCH_EVERY, 2 * TOUCH_EVERY]


async def test_session_has_the_current_rights_of_its_key_and_ends_with_the_key():
    stored, key = made(scopes=("mcp:*", "admin:write"))
    site = Site(stored)
    await site.ring.refresh()
    principal = await site.auth.authenticate([(b"x-api-key", key)], None)
    opened = await site.sessions.open(principal)
    assert await site.find(opened) is principal

    site.source.keys[stored.id] = replace(stored, scopes=("mcp:read",))
    await site.ring.refresh()
    found = await site.find(opened)
    assert found is not None
    assert found.scopes == {"mcp:read"}

    site.source.keys[stored.id] = replace(stored, revoked=NOW)
    await site.ring.refresh()
    assert await site.find(opened) is None


async def test_session_opened_with_a_token_keeps_its_groups_and_claims():
    site = Site()
    owner = Principal(
        "https://id#4711", frozenset({"mcp:read"}), {"dept": "x"}, groups=frozenset({"leads"})
    )
    opened = await site.sessions.open(owner)

    first = await site.find(opened)
    assert first == owner
    assert await site.find(opened) is first


async def test_code_opens_a_session_once_within_ten_minutes():
    site = Site()
    code, late = await site.sessions.issue_code(ANNA), await site.sessions.issue_code(ANNA)

    assert len(code) == 22  # 128 bits
    assert await site.sessions.redeem(f"{code}x") is None
    assert await site.sessions.redeem(code) == ANNA
    with pytest.raises(AuthRequired, match="used before") as refused:
        await site.sessions.redeem(code)
    assert refused.value.reason == "code_used"
    site.now += CODE_LIFETIME
    assert await site.sessions.redeem(late) is None


async def test_user_lists_and_ends_only_their_own_sessions():
    site = Site()
    opened = await site.sessions.open(ANNA)
    other = await site.sessions.open(Principal("user:berta"))

    assert await site.sessions.of(ANNA) == [opened.stored]
    assert not await site.sessions.revoke(ANNA, other.stored.id)
    assert await site.sessions.revoke(ANNA, opened.stored.id)
    assert await site.find(opened) is None
    assert await site.find(other) is not None


async def test_logout_needs_both_halves():
    site = Site()
    opened = await site.sessions.open(ANNA)

    await site.sessions.close(opened.cookie, "guess")
    assert await site.find(opened) is not None
    await site.sessions.close(opened.cookie, opened.page_key)
    assert await site.find(opened) is None


async def test_unavailable_database_is_a_503():
    site = Site()
    opened = await site.sessions.open(ANNA)
    site.stored.fails = True

    with pytest.raises(AuthUnavailable, match="sessions cannot be verified now"):
        await site.find(opened)


def test_cookie_is_bound_to_its_listener():
    local = SessionCookie.of(is_local=True, port=8081)
    public = SessionCookie.of(is_local=False, port=8080)
    admin = SessionCookie.of(is_local=False, port=8081, is_admin=True)

    assert local.header("v")[1] == (
        b"interlock-8081=v; Path=/; HttpOnly; SameSite=Strict; Max-Age=604800"
    )
    assert public.header("v")[1] == (
        b"__Host-interlock=v; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=604800"
    )
    assert admin.name == "__Host-interlock-admin"
