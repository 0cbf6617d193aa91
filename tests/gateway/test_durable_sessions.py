"""Sessions of legacy clients that another gateway of the same database continues."""

from __future__ import annotations

import asyncio
import re
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.context import Session
from interlock.gateway import durable_sessions
from interlock.gateway.durable_sessions import DurableSessions
from interlock.store import KeyStore
from interlock.store.database import changes
from interlock.types import ClientCapabilities, Implementation
from tests.cli.conftest import ECHO
from tests.gateway.conftest import RunningGateway, bearer, offering
from tests.server.http.conftest import LegacyClient
from tests.store.conftest import postgres
from tests.support.scripted_server import Json, text

__all__ = ["postgres"]  # a fixture
pytestmark = [
    pytest.mark.program("PostgreSQL"),
    pytest.mark.slow("opens two gateways on a database for each case"),
]

LISTS = [f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")]


class Two:
    """Two gateways on one database, and keys that both know."""

    def __init__(self, gateways: list[RunningGateway], keys: list[str]) -> None:
        self.gateways, self.keys = gateways, keys

    async def begin(self, at: int = 0, key: int = 0, **options: Any) -> LegacyClient:
        http = self.gateways[at].http
        return await http.initialize(headers=bearer(self.keys[key]), **options)

    def at(self, number: int, client: LegacyClient, id: str = "", key: int = 0) -> LegacyClient:
        """Return a client that continues a session at another gateway."""
        http, revision = self.gateways[number].http, client.headers["mcp-protocol-version"]
        return LegacyClient(http, id or client.id, revision, bearer(self.keys[key]))


@pytest.fixture
def servers() -> Json:
    return {}


@pytest.fixture
async def two(
    running, postgres: str, servers: Json, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Two]:
    monkeypatch.setenv("INTERLOCK_KEY", bytes(range(32)).hex())
    monkeypatch.setattr(changes, "POLL_EVERY", 0.01)
    async with KeyStore.open(postgres) as store:
        keys = [(await store.create(user, scopes=("mcp:*",)))[1] for user in ("anna", "berta")]
    async with AsyncExitStack() as stack:
        gateways = []
        server = offering("x")
        server.answers["tools/call"] = lambda _: text("done")
        for _ in range(2):
            one = running({"database": postgres}, crm=server, **servers)
            gateways.append(await stack.enter_async_context(one))
        yield Two(gateways, keys)


async def test_session_continues_at_another_gateway_that_notifies_once(two: Two):
    client = await two.begin(capabilities={"elicitation": {"form": {}, "url": {}}})
    there = two.at(1, client)

    assert (await there.call("crm__x")).json["result"]["content"][0]["text"] == "done"
    stream = there.listen(last="0-7")  # the client has read events of the first gateway
    while stream.body.count(b"list_changed") < len(LISTS):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert re.findall(r'"method":"([^"]+)"', stream.body.decode()) == LISTS
    (session,) = two.gateways[1].endpoint.app.sessions._open.values()
    assert session.session.client_capabilities.elicitation == {"form": {}, "url": {}}
    assert session.session.client_info == Implementation("tests", "1")
    assert session.session.revision == "2025-11-25"
    assert (await two.at(0, client).call("crm__x")).code == 200  # it has not moved
    stream.disconnect()


async def test_numbers_of_a_restored_session_are_none_that_its_client_knows(two: Two):
    client = await two.begin()
    there = two.at(1, client)
    assert (await there.ask("ping")).code == 200
    (session,) = two.gateways[1].endpoint.app.sessions._open.values()

    assert session.new_stream().number > 1
    assert (await there.listen(last="1-1").finished()).code == 400


async def test_session_that_was_ended_is_ended_everywhere(two: Two):
    client = await two.begin()
    there = two.at(1, client)
    assert (await there.ask("ping")).code == 200

    assert (await there.delete()).code == 204
    assert (await there.ask("ping")).code == 404
    while len(two.gateways[0].endpoint.app.sessions):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert (await two.at(0, client).ask("ping")).code == 404


def flipped(id: str, at: int) -> str:
    signed = bytearray(urlsafe_b64decode(id + "=" * (-len(id) % 4)))
    signed[at] ^= 1
    return urlsafe_b64encode(signed).rstrip(b"=").decode()


async def test_ids_that_are_not_valid_are_refused_alike(two: Two, monkeypatch):
    client = await two.begin()
    foreign = two.at(1, client, key=1)
    other_key = DurableSessions(GatewayKey(bytes(range(1, 33))), *others(two))
    state, principal = Session(revision="2025-11-25"), None
    made = [
        *(flipped(client.id, at) for at in (0, 20, -40, -1)),
        *(client.id[:size] for size in (1, 43, len(client.id) - 1)),
        client.id + "A",
        client.id + "=",
        client.id.swapcase(),
        "a" * 100_000,
        "é",
        other_key.make(state, principal),
        durable(two).make(Session(revision="2026-07-28"), principal),
    ]
    replies = [await two.at(1, client, id).ask("ping") for id in made]
    replies.append(await foreign.ask("ping"))
    # The other gateway's clock may be behind, so an age can be below zero.
    monkeypatch.setattr(durable_sessions, "MAX_AGE", -durable_sessions._AHEAD)
    replies.append(await two.at(1, client).ask("ping"))

    assert {reply.code for reply in replies} == {404}
    assert len({reply.body for reply in replies}) == 1
    assert len(two.gateways[1].endpoint.app.sessions) == 0


def durable(two: Two) -> DurableSessions:
    found = two.gateways[1].assembly.services.sessions
    assert found is not None
    return found


def others(two: Two) -> tuple[Any, Any]:
    assembly = two.gateways[1].assembly
    return assembly.services.feed, lambda: assembly.parts


async def test_ids_of_clients_with_much_to_tell_are_short(two: Two):
    much = {"experimental": {"x" * 5_000: {}}, "sampling": {"tools": {}}}
    session = Session(
        revision="2025-06-18",
        client_capabilities=ClientCapabilities(**much),
        client_info=Implementation("n" * 5_000, "v" * 5_000),
    )
    id = durable(two).make(session, None)
    restored = durable(two).restore(id, None)

    assert len(id) < 700
    assert restored is not None
    assert restored[0].client_capabilities == ClientCapabilities(sampling={})


async def test_first_number_exceeds_what_a_client_was_sent_even_if_the_clock_is_behind(
    two: Two, monkeypatch: pytest.MonkeyPatch
):
    sessions = durable(two)
    id = sessions.make(Session(revision="2025-06-18"), None)
    now = sessions._feed.now()
    monkeypatch.setattr(sessions._feed, "now", lambda: now - durable_sessions._AHEAD + 1_000_000)
    restored = sessions.restore(id, None)

    assert restored is not None
    assert restored[1] > 900  # so many events were not sent within milliseconds


async def test_many_ended_sessions_refuse_all_of_their_age(two: Two, monkeypatch):
    monkeypatch.setattr(durable_sessions, "MAX_ENDED", 2)
    sessions = durable(two)
    ids = [(each, sessions.make(each, None)) for each in (Session(revision="2025-06-18"),) * 4]
    for name in "abc":
        sessions._add(name, sessions._feed.now())
    young = sessions.make(Session(revision="2025-06-18"), None)

    assert len(sessions._ended) == 2
    assert [sessions.restore(id, None) for _, id in ids] == [None] * 4
    assert sessions.restore(young, None) is not None


OF_SESSIONS = {"command": sys.executable, "args": ECHO, "sharing": "per_session"}


@pytest.mark.parametrize("servers", [{"own": OF_SESSIONS}])
async def test_session_with_connections_of_its_own_is_not_restored(two: Two):
    client = await two.begin()

    assert (await two.at(0, client).ask("ping")).code == 200
    assert (await two.at(1, client).ask("ping")).code == 404
