"""The authorizations of the front door in memory."""

from __future__ import annotations

import asyncio

from interlock.auth.access_token import AccessToken
from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.auth.stored_authorization import StoredAuthorization, StoredPerson
from interlock.text.timestamps import now_micros

ID, USER = "A" * 12, "https://issuer.example#anna"


class Source:
    """A storage whose answers about a person can be late."""

    def __init__(self) -> None:
        self.scopes = ("mcp:*",)
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def get(self, id: str) -> StoredAuthorization:
        now = now_micros()
        times = {"rotated": now, "created": now, "last_used": now, "expires": now + 60_000_000}
        return StoredAuthorization(
            id=id, user=USER, client="c", name="c", salt=b"", scopes=("mcp:*",), **times
        )

    async def changed(self) -> set[str]:
        return {ID}

    async def list(self, **_: int) -> list[StoredAuthorization]:
        return []

    async def expired(self, *_: int) -> list[str]:
        return []

    async def touch(self, used: object) -> None: ...

    async def person(self, user: str, tenant: str) -> StoredPerson:
        found = StoredPerson(user=user, scopes=self.scopes)
        self.asked.set()
        await self.may_answer.wait()
        return found


async def scopes_of(ring: AuthorizationRing, token: bytes) -> frozenset[str]:
    found = await ring.find(token)
    assert found is not None
    return found.principal.scopes


async def test_late_answer_of_the_database_brings_no_rights_back():
    source, secret = Source(), GatewayKey.random()
    ring = AuthorizationRing(source, source.person, secret, KeyRing())
    expires = now_micros() // 1_000_000 + 60
    token = AccessToken(ID, 0, expires, ("mcp:*",)).sealed(secret).encode()
    assert await scopes_of(ring, token) == {"mcp:*"}
    held = source.may_answer = asyncio.Event()
    source.asked.clear()
    late = asyncio.create_task(ring.refresh())
    await source.asked.wait()
    source.scopes = ("mcp:read",)  # a group was taken away
    source.may_answer = asyncio.Event()
    source.may_answer.set()
    again = asyncio.create_task(ring.refresh())
    for _ in range(10):
        await asyncio.sleep(0)
    held.set()
    await asyncio.gather(late, again)
    assert await scopes_of(ring, token) == {"mcp:read"}


async def test_people_are_in_use_for_a_minute_although_their_use_is_stored():
    source, secret = Source(), GatewayKey.random()
    ring = AuthorizationRing(source, source.person, secret, KeyRing())
    expires = now_micros() // 1_000_000 + 60
    await ring.find(AccessToken(ID, 0, expires, ("mcp:*",)).sealed(secret).encode())
    await ring._step(False)
    assert [each.user for each in ring.in_use()] == [USER]
    ring._wall = lambda: now_micros() + 70_000_000
    assert ring.in_use() == []
