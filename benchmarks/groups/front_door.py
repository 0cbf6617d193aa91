"""What the OAuth front door costs: its pages, a call with one of its tokens, a refresh, its memory.

The pages and the memory that it adds are those of `interlock serve`, over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import tracemalloc
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from time import process_time, sleep
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from urllib.request import Request, urlopen

from benchmarks.groups.gateway import Gateway, beyond
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
from interlock.store.keys import KeyStore
from interlock.text.timestamps import now_micros

TITLE = "OAuth front door"
RESOURCE = "https://tools.example.com/mcp"
MANY = 10_000  # authorizations
REFRESHES = 200
CLIENT = ProvenClient(FrontClient(id="client", name="Client", redirects=("https://c.example/cb",)))
SECRET = GatewayKey(bytes(range(32)))
DAY = 86_400 * 1_000_000
PAGES = 100  # requests of one sample: what /authorize answers at once
REDIRECT = "https://c.example/cb"


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
    yield from _of_pages(effort)
    yield _of_serving(effort)


class Served(Gateway):
    """`interlock serve`, with the front door or without it.

    Attributes:
        key: An API key.
    """

    def __init__(self, folder: Path, *, has_door: bool) -> None:
        file, database = folder / "gateway.json", folder / "gateway.db"
        gateway = {"database": str(database), "auth": {"oauth": {}} if has_door else {}}
        servers = {"time": {"command": sys.executable, "args": ["-m", "mcp_server_time"]}}
        file.write_text(json.dumps({"mcpServers": servers, "gateway": gateway}))
        program = str(Path(sys.executable).with_name("interlock"))
        super().__init__([program, "serve", "--config", str(file), "--http", "127.0.0.1:{port}"])
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = asyncio.run(_key_of(database))

    def send(self, path: str, body: Any = None, **headers: str) -> Any:
        """Send JSON, or a form if the path is /token; return the answer's JSON or text."""
        form = path == "/token"
        data = urlencode(body) if form else json.dumps(body)
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        told = {"Content-Type": kind, "Origin": self.url, **headers}
        request = Request(self.url + path, None if body is None else data.encode(), told)
        with urlopen(request) as reply:
            text = reply.read().decode()
            self.cookie = reply.headers.get("Set-Cookie", "").partition(";")[0]
            return json.loads(text) if text.startswith("{") else text


async def _key_of(database: Path) -> str:
    async with KeyStore.open(database) as store:
        return (await store.create("bench", scopes=["mcp:*"]))[1]


class _Visit:
    """A person who has signed in with a key, and a client that asks for access."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._verifier = "v" * 43
        metadata = {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
        self._client = served.send("/register", metadata)["client_id"]
        challenge = urlsafe_b64encode(sha256(self._verifier.encode()).digest()).decode()
        self.query = urlencode(
            {
                "response_type": "code",
                "client_id": self._client,
                "redirect_uri": REDIRECT,
                "code_challenge": challenge.rstrip("="),
                "code_challenge_method": "S256",
            }
        )
        page_key = served.send("/api/login", {"key": served.key})["pageKey"]
        self._session = {"Cookie": served.cookie, "X-Interlock-Key": page_key}

    def page(self) -> None:
        assert "wants to use" in self._served.send(f"/authorize?{self.query}")

    def shown(self) -> Any:
        return self._served.send("/api/authorize", {"query": self.query}, **self._session)

    def allow(self) -> str:
        """Allow it; return the code."""
        body = {"query": self.query, "seen": self.shown()["seen"], "allow": True}
        answer = self._served.send("/api/authorize/decide", body, **self._session)
        return dict(parse_qsl(urlsplit(answer["location"]).query))["code"]

    def log_in(self) -> None:
        """Make one whole login, with a refresh."""
        self.page()
        form = {"client_id": self._client}
        asked = {"code": self.allow(), "redirect_uri": REDIRECT, "code_verifier": self._verifier}
        tokens = self._served.send("/token", form | asked | {"grant_type": "authorization_code"})
        refreshed = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
        self._served.send("/token", form | refreshed)


def _of_pages(effort: Effort) -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Served(Path(folder), has_door=True) as served,
    ):
        visit = _Visit(served)

        def processor_of(send: Any) -> float:
            sleep(1)  # until /authorize answers so many at once again
            before = served.processor_seconds()
            for _ in range(PAGES):
                send()
            return (served.processor_seconds() - before) / PAGES

        name = "processor time with HTTP"
        taken = contest({US: lambda: processor_of(visit.page)}, effort.rounds)
        yield Row(f"the page of /authorize, {name}", "s", taken, {US: 2e-3})
        taken = contest({US: lambda: processor_of(visit.shown)}, effort.rounds)
        yield Row(f"what the page shows of a request, {name}", "s", taken)


def _of_serving(effort: Effort) -> Row:
    """Compare the memory of a gateway after a login with that of one without a front door."""
    held: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(effort.rounds):
        for has_door, found in held.items():
            with (
                tempfile.TemporaryDirectory() as folder,
                Served(Path(folder), has_door=has_door) as served,
            ):
                served.send("/api/login", {"key": served.key})
                if has_door:
                    _Visit(served).log_in()
                found.append(served.memory())
    added = beyond(held[False], held[True])
    return Row("memory that it adds to a gateway, with one login", "MB", {US: added}, {US: 3.0})


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
