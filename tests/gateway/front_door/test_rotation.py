"""Codes and refresh tokens under any order of events, by any two holders."""

from __future__ import annotations

import asyncio
import random
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.auth.principal import Principal
from interlock.auth.stored_authorization import StoredAuthorization
from interlock.gateway.front_door.refresh_token import GRACE, RefreshToken, refresh_token, verdict
from interlock.gateway.front_door.tokens import Decided, authorization_of
from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.database import Database, open_database
from tests.gateway.front_door.issuing import CLIENT, Issuing, LocalIssuer, Request, remote_issuer
from tests.store.conftest import postgres

__all__ = ["postgres"]  # a fixture

VERIFIER = "v" * 43
CHALLENGE = urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
EXAMPLES = 60  # interleavings in one process
INTERLEAVINGS, ROUND, AT_ONCE = 10_000, 500, 20  # in two processes
# Which of the last four refresh tokens is sent, a call with the newest access token, the end of the
# grace, or the second use of the code; and at which of two gateways.
NAMES = ("newest", "before", "older", "oldest", "call", "wait", "code")
EVENTS = st.tuples(st.sampled_from(NAMES), st.booleans())


class World:
    """One database and the issuers of two gateways."""

    def __init__(self, issuers: Sequence[Issuing], own: LocalIssuer, database: Database) -> None:
        self.issuers = issuers
        self.own = own
        self.store = AuthorizationStore(database)


@pytest.mark.slow("fills a database")
def test_there_is_one_successor_and_a_thief_ends_the_access(tmp_path: Path):
    with asyncio.Runner() as runner:
        database = runner.run(open_database(str(tmp_path / "gateway.db")))
        issuers = [LocalIssuer(database) for _ in range(2)]
        world = World(issuers, issuers[0], database)
        people = count()

        @given(st.lists(EVENTS, max_size=10))
        @settings(max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
        def follow(events: list[tuple[str, bool]]) -> None:
            runner.run(_run(world, f"https://id.example#{next(people)}", events))

        try:
            follow()
        finally:
            runner.run(database.close())


@pytest.mark.product
@pytest.mark.program("PostgreSQL")
@pytest.mark.timeout(1_800)
async def test_two_processes_have_one_successor_in_any_order(postgres: str):
    choose = random.Random(4711)
    database = await open_database(postgres)
    done = 0
    while done < INTERLEAVINGS:  # new processes now and then, with nothing in memory
        async with remote_issuer(postgres) as one, remote_issuer(postgres) as other:
            world = World([one, other], LocalIssuer(database), database)
            for _ in range(ROUND // AT_ONCE):
                runs = [
                    (
                        f"https://id.example#{done + number}",
                        [
                            (choose.choice(NAMES), choose.random() < 0.5)
                            for _ in range(choose.randrange(11))
                        ],
                    )
                    for number in range(AT_ONCE)
                ]
                await asyncio.gather(*(_run(world, user, events) for user, events in runs))
                done += AT_ONCE
    await database.close()


async def _run(world: World, user: str, events: Sequence[tuple[str, bool]]) -> None:
    now = 1_000_000_000_000_000
    allowed = authorization_of(
        *(CLIENT.client, Principal(user)),
        view="",
        scopes=("mcp:*",),
        expires=now + 10**14,
        now=now,
    )
    decided = Decided("https://c.example/cb", CHALLENGE, allowed)

    async def ask(second: bool, action: str, **sent: str) -> dict[str, Any]:
        return await world.issuers[int(second)].ask(Request(action, sent, now))

    code = await world.own.code(decided, now)
    form = {"code": code, "code_verifier": VERIFIER, "redirect_uri": decided.redirect_uri}
    first = await ask(False, "redeem", **form)
    tokens, access, waited, used, ended = [first["refresh_token"]], first, False, -1, False
    for event, second in events:
        if event == "call":
            answer = await ask(second, "call", token=access["access_token"])
            assert answer["valid"] == (not ended)
            used = max(used, len(tokens) - 1) if not ended else used
        elif event == "wait":
            now, waited = now + GRACE + 1, True
        elif event == "code":
            assert "used before" in (await ask(second, "redeem", **form))["error"]
            ended = True
        else:
            back = ("newest", "before", "older", "oldest").index(event)
            if back >= len(tokens):
                continue
            generation = len(tokens) - 1 - back
            is_stolen = back > 1 or (back == 1 and waited and used >= len(tokens) - 1)
            answer = await ask(second, "refresh", refresh_token=tokens[generation])
            if ended or is_stolen:
                assert "error" in answer
                ended = True
                continue
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
