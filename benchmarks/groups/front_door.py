"""What the OAuth front door costs: a call with one of its tokens, a refresh, and its memory."""

from __future__ import annotations

import asyncio
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any

from benchmarks.groups.gateway import beyond
from benchmarks.groups.layers import of
from benchmarks.harness import BARE, US, Effort, Row, contest
from interlock.auth.access_token import AccessToken
from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.gateway_auth import GatewayAuth
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.auth.stored_authorization import StoredAuthorization, StoredPerson
from interlock.gateway.front_door.client_authentication import ProvenClient
from interlock.gateway.front_door.clients import FrontClient
from interlock.gateway.front_door.door_parts import DoorParts
from interlock.gateway.front_door.request import Resources
from interlock.gateway.front_door.tokens import TokenIssuer
from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.database import open_database
from interlock.text.timestamps import now_micros

TITLE = "OAuth front door"
RESOURCE = "https://tools.example.com/mcp"
MANY = 10_000  # authorizations
REFRESHES = 200
CLIENT = ProvenClient(FrontClient(id="client", name="Client", redirects=("https://c.example/cb",)))
SECRET = GatewayKey(bytes(range(32)))
DAY = 86_400 * 1_000_000


def rows(effort: Effort) -> Iterator[Row]:
    keys, ring = KeyRing(), _ring(stored := {"AAAAAAAAAAAA": _authorization("AAAAAAAAAAAA")})
    assert stored
    auth = GatewayAuth(keys, resource=RESOURCE, grants=ring, login_at="https://tools.example.com")
    token = _token("AAAAAAAAAAAA")
    headers = {
        name: [(b"host", b"x"), (b"authorization", b"Bearer " + text.encode())]
        for name, text in ((US, token), (BARE, keys.issue("anna", ["mcp:*"])))
    }
    for each in headers.values():
        asyncio.run(auth.authenticate(each, None))
    assert all(auth.known(each) is not None for each in headers.values())
    samples = {
        name: of(lambda each=each: auth.known(each), effort) for name, each in headers.items()
    }
    taken = contest(samples, effort.rounds)
    added = beyond(taken[BARE], taken[US])
    yield Row("a call with a token, beyond a key", "s", {US: added}, {US: 2e-6})

    def first_use() -> None:
        fresh = _ring(stored)
        try:
            fresh.find(token.encode()).send(None)
        except StopIteration:
            return

    bare = contest({US: of(first_use, effort, at_once=50)}, effort.rounds)
    yield Row("the first use of a token, without the database", "s", bare, {US: 30e-6})
    refreshed = contest({US: lambda: asyncio.run(_refreshes())}, effort.rounds)
    yield Row("a refresh with SQLite, without HTTP", "s", refreshed, {US: 5e-3})
    held = contest({US: _memory}, 1)
    yield Row(f"memory of {MANY:,} authorizations, each with a token", "B", held, {US: 20e6})


def _authorization(id: str) -> StoredAuthorization:
    now = now_micros()
    return StoredAuthorization(
        id=id,
        user=f"https://id.example.com#{id}",
        client="client",
        name="Client",
        scopes=("mcp:*",),
        salt=b"s" * 16,
        rotated=now,
        created=now,
        last_used=now,
        expires=now + DAY,
    )


def _token(id: str) -> str:
    expires = now_micros() // 1_000_000 + 3_600
    return AccessToken(id, 0, expires, ("mcp:*",)).sealed(SECRET)


def _ring(stored: dict[str, StoredAuthorization]) -> AuthorizationRing:
    class Source:
        async def get(self, id: str) -> StoredAuthorization | None:
            return stored.get(id)

        async def changed(self) -> set[str]:
            return set()

        async def list(self, **_: Any) -> list[StoredAuthorization]:
            return []

        async def expired(self, *_: int) -> list[str]:
            return []

        async def touch(self, used: Any) -> None:
            pass

    async def person(user: str, tenant: str) -> StoredPerson:
        return StoredPerson(user=user, scopes=("mcp:*",), tenant=tenant)

    return AuthorizationRing(Source(), person, SECRET, KeyRing())


async def _refreshes() -> float:
    """Return the processor time of one refresh, in seconds."""
    async with _issuer() as issuer:
        store = issuer._store
        await store.add(_authorization("AAAAAAAAAAAA"))
        made = await store.get("AAAAAAAAAAAA")
        assert made is not None
        token = issuer._answer(made, 0, ("mcp:*",))["refresh_token"]
        started = process_time()
        for _ in range(REFRESHES):
            answer = await issuer.refresh({"refresh_token": token}, CLIENT)
            token = answer["refresh_token"]
        return (process_time() - started) / REFRESHES


@asynccontextmanager
async def _issuer() -> AsyncIterator[TokenIssuer]:
    async def nobody(*_: object) -> None:
        return None

    with tempfile.TemporaryDirectory() as folder:
        database = await open_database(str(Path(folder, "gateway.db")))
        try:
            resources = Resources(RESOURCE, ())
            rest: Any = {
                "clients": None,
                "rechecks": SimpleNamespace(check=nobody),
                "gateway": SimpleNamespace(
                    resources=lambda: resources,
                    recorder=SimpleNamespace(recording_client=lambda *_, **__: None),
                ),
            }
            store, ring, keys = AuthorizationStore(database), _ring({}), KeyRing()
            yield TokenIssuer(DoorParts(store=store, ring=ring, keys=keys, secret=SECRET, **rest))
        finally:
            await database.close()


def _memory() -> float:
    """Return the bytes that the ring holds for many authorizations with one token each."""
    ids = [f"{number:012d}" for number in range(MANY)]
    texts = [_token(each).encode() for each in ids]

    async def use() -> None:
        for each in texts:
            await ring.find(each)

    tracemalloc.start()
    try:
        ring = _ring(_Made())
        asyncio.run(use())
        assert len(ring) == MANY
        return float(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()


class _Made(dict[str, StoredAuthorization]):
    """Authorizations that are made when they are read, as a database does."""

    def get(self, id: str, default: Any = None) -> StoredAuthorization:  # type: ignore[override]
        del default
        return _authorization(id)
