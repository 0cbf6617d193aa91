"""Codes and refresh tokens under any order of events, by any two holders."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.auth.stored_authorization import StoredAuthorization, StoredPerson
from interlock.gateway.front_door.clients import FrontClient
from interlock.gateway.front_door.refresh_token import GRACE, RefreshToken, refresh_token, verdict
from interlock.gateway.front_door.request import OAuthError, Resources
from interlock.gateway.front_door.tokens import Decided, ProvenClient, TokenIssuer
from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.database import Database, open_database

CLIENT = ProvenClient(FrontClient(id="client", name="Client", redirects=("https://c.example/cb",)))
VERIFIER = "v" * 43
EXAMPLES = 60  # interleavings
CHALLENGE = urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
# Which of the last four refresh tokens is sent, a call with the newest access token, the end of the
# grace, or the second use of the code; and at which of two gateways.
EVENTS = st.tuples(
    st.sampled_from(["newest", "before", "older", "oldest", "call", "wait", "code"]), st.booleans()
)


class World:
    """One database and two issuers of tokens, as two gateways have."""

    def __init__(self, issuers: list[TokenIssuer], store: AuthorizationStore) -> None:
        self.issuers = issuers
        self.store = store
        self.now = 1_000_000_000_000_000


async def _nobody(*_: object) -> None:
    return None


async def _person(user: str, tenant: str) -> StoredPerson:
    return StoredPerson(user=user, scopes=("mcp:*",), tenant=tenant)


async def _world(database: Database) -> World:
    secret = GatewayKey(bytes(range(32)))
    world = World([], AuthorizationStore(database))
    resources = Resources("https://tools.example.com/mcp", ())

    def now() -> int:
        return world.now

    for _ in range(2):
        store = AuthorizationStore(database)
        ring = AuthorizationRing(store, _person, secret, KeyRing(), wall=now)
        clients: Any = SimpleNamespace()
        issuer = TokenIssuer(
            *(store, ring, secret, clients, lambda: resources),
            *(lambda *_, **__: None, _nobody, now),
        )
        world.issuers.append(issuer)
    return world


@pytest.mark.slow("fills a database")
def test_there_is_one_successor_and_a_thief_ends_the_access(tmp_path: Path):
    with asyncio.Runner() as runner:
        database = runner.run(open_database(str(tmp_path / "gateway.db")))
        world = runner.run(_world(database))
        people = count()

        @given(st.lists(EVENTS, max_size=10))
        @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
        def follow(events: list[tuple[str, bool]]) -> None:
            runner.run(_run(world, f"https://id.example#{next(people)}", events))

        try:
            follow()
        finally:
            runner.run(database.close())


async def _run(world: World, user: str, events: list[tuple[str, bool]]) -> None:
    decided = Decided(
        client="client",
        name="Client",
        verified="",
        redirect_uri="https://c.example/cb",
        challenge=CHALLENGE,
        view="",
        scopes=("mcp:*",),
        user=user,
        key="",
        ends=world.now + 10**14,
    )
    person = StoredPerson(user=decided.user, scopes=("mcp:*",))
    code = await world.issuers[0].issue_code(decided, person)
    form = {"code": code, "code_verifier": VERIFIER, "redirect_uri": decided.redirect_uri}
    first = await world.issuers[0].redeem(form, CLIENT)
    tokens, access, waited, used, ended = [first["refresh_token"]], first, False, -1, False
    for event, second in events:
        issuer = world.issuers[int(second)]
        if event == "call":
            await issuer._ring.refresh()  # as each gateway does within a second
            found = await issuer._ring.find(access["access_token"].encode())
            assert (found is None) == ended
            await issuer._ring._write_uses()
            used = max(used, len(tokens) - 1) if not ended else used
        elif event == "wait":
            world.now, waited = world.now + GRACE + 1, True
        elif event == "code":
            with pytest.raises(OAuthError, match="used before"):
                await issuer.redeem(form, CLIENT)
            ended = True
        else:
            back = ("newest", "before", "older", "oldest").index(event)
            if back >= len(tokens):
                continue
            generation = len(tokens) - 1 - back
            is_stolen = back > 1 or (back == 1 and waited and used >= len(tokens) - 1)
            asked = {"refresh_token": tokens[generation]}
            if ended or is_stolen:
                with pytest.raises(OAuthError):
                    await issuer.refresh(asked, CLIENT)
                ended = True
                continue
            answer = await issuer.refresh(asked, CLIENT)
            if back == 0:
                tokens.append(answer["refresh_token"])
                access, waited = answer, False
            else:
                assert answer["refresh_token"] == tokens[-1]
    (stored,) = await world.store.list(user=user)
    assert (stored.ended is not None) == ended
    if not ended:
        assert stored.generation == len(tokens) - 1


def test_an_invented_token_is_never_verified():
    stored = StoredAuthorization(
        id="AAAAAAAAAAAA",
        user="u",
        client="c",
        name="c",
        salt=b"s" * 16,
        rotated=0,
        created=0,
        last_used=0,
        expires=1,
    )
    key = b"k" * 32
    real = RefreshToken.read(refresh_token(stored, 3, key))
    assert real is not None
    assert real.is_of(stored, key)
    for other in (real._replace(generation=2), real._replace(mac=b"x" * 16)):
        assert not other.is_of(stored, key)
    assert verdict(stored, 9, 0) == "unknown"
    for text in ("", "ilr_", "ilr_!!", "ilo_AAAA", refresh_token(stored, 3, key)[:-3]):
        assert RefreshToken.read(text) is None
