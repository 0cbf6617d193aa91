"""Clients that are described by a document, and what an unsuitable document meets."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from interlock.gateway.front_door import documents as documents_module
from interlock.gateway.front_door.client_authentication import BY_JWT
from interlock.gateway.front_door.request import OAuthError
from interlock.store.oauth_clients import StoredClient
from tests.gateway.front_door.document_host import REDIRECT, Host, host, unsigned
from tests.gateway.front_door.visitor import Visitor
from tests.support.rows import each_row

__all__ = ["host"]

pytestmark = pytest.mark.slow("fills a database")


def use(visitor: Visitor, host: Host) -> None:
    visitor.client, visitor.redirect = host.id, REDIRECT


async def test_client_with_a_document_is_known_by_its_host(door, host: Host):
    async with door() as visitor:
        use(visitor, host)
        shown = (await visitor.shown(visitor.query())).json["client"]
        assert (shown["verified"], shown["name"]) == ("127.0.0.1", "Claude")
        tokens = await visitor.log_in()
        assert (await visitor.call(tokens["access_token"])).text == "done"
        for _ in range(20):
            assert (await visitor.authorize(visitor.query())).code == 200
        assert host.fetches == 1


async def test_rule_can_name_a_proven_client_and_no_name_passes_for_it(door, host: Host):
    proven = {"interlock:client": {"const": "127.0.0.1"}}
    rule = {"id": "x", "effect": "allow", "who": ["*"], "tools": ["crm:x"], "claims": proven}
    async with door(policy={"rules": [rule]}) as visitor:
        await visitor.register(client_name="127.0.0.1")
        liar = await visitor.log_in()
        assert "done" not in (await visitor.call(liar["access_token"])).body.decode()
        use(visitor, host)
        tokens = await visitor.log_in()
        assert (await visitor.call(tokens["access_token"])).text == "done"


@each_row(
    "url",
    ["https://[/c", "https://[x]/c", "https://:80/c", "https://a:b:c/c", "https://a.example./c"],
)
async def test_malformed_url_of_a_document_is_refused_without_a_request(url: str):
    with pytest.raises(OAuthError, match="is not the URL of a client's document"):
        await documents_module.Documents(lambda: pytest.fail("requested")).find(url)


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents_module, "NEW", 10_000)


@pytest.mark.usefixtures("unlimited")
async def test_unsuitable_document_is_refused_without_a_redirect(door, host: Host):
    async with door() as visitor:
        use(visitor, host)
        deep = b'{"client_id": ' + b"[" * 3_000 + b"]" * 3_000 + b"}"
        unsuitable: list[dict[str, Any] | web.Response] = [
            {"client_id": "https://claude.ai/other"},
            {"client_secret": "s"},
            {"redirect_uris": ["javascript:alert(1)"]},
            {"redirect_uris": []},
            {"token_endpoint_auth_method": "client_secret_post"},
            {"token_endpoint_auth_method": "private_key_jwt"},
        ]
        known = visitor.gateway.assembly.services.front_door.clients._documents._known
        for each in unsuitable:
            host.more = each  # type: ignore[assignment]
            known.clear()
            reply = await visitor.authorize(visitor.query())
            assert (reply.code, reply.header("location")) == (400, None), each
        bodies = [
            web.Response(status=302, headers={"location": "https://claude.ai/"}),
            web.Response(status=404),
            web.Response(body=b"<html>", content_type="text/html"),
            web.Response(body=b" " * 200_000 + b"{}"),
            web.Response(body=deep),
        ]
        for body in bodies:
            host.raw = body
            known.clear()
            reply = await visitor.authorize(visitor.query())
            assert (reply.code, reply.header("location")) == (400, None), body


@pytest.mark.usefixtures("unlimited")
async def test_addresses_that_are_not_public_are_never_fetched(running, host: Host):
    from tests.gateway.conftest import offering

    settings = {
        "publicUrl": "https://tools.example.com/mcp",
        "hosts": ["tools.example.com", "127.0.0.1"],
        "auth": {"oauth": {}},
    }
    port = host.id.split(":")[2].partition("/")[0]
    async with running(settings, crm=offering("x")) as gateway:
        visitor = Visitor(gateway)
        for url in (
            host.id,
            host.id.replace("http:", "https:"),
            f"https://localhost:{port}/client.json",
            f"https://[::ffff:127.0.0.1]:{port}/client.json",
            f"https://2130706433:{port}/client.json",
            f"https://0x7f.1:{port}/client.json",
            "https://169.254.169.254/latest",
            "https://10.0.0.1/client",
            "https://claude.ai",
            "https://claude.ai/",
            "https://user@claude.ai/client",
            "https://claude.ai/../client",
            "https://claude.ai/client#x",
        ):
            visitor.client = url
            assert (await visitor.authorize(visitor.query())).code == 400, url
        assert host.fetches == 0


async def test_host_that_hangs_delays_its_own_requests_only(door, host: Host):
    async with door() as visitor:
        registered = visitor.client
        host.may_answer.clear()
        use(visitor, host)
        waiting = asyncio.create_task(visitor.authorize(visitor.query()))
        await host.asked.wait()
        other = Visitor(visitor.gateway)
        other.client = registered
        assert (await other.authorize(other.query())).code == 200
        host.may_answer.set()
        assert (await waiting).code == 200


async def test_hosts_that_hang_keep_no_known_client_out(door, host: Host, monkeypatch):
    monkeypatch.setattr(documents_module, "PATIENCE", 0.05)
    async with door() as visitor:
        use(visitor, host)
        tokens = await visitor.log_in()
        documents = visitor.gateway.assembly.services.front_door.clients._documents
        clock = documents._clock
        documents._clock = lambda: clock() + 3_600
        documents._at_once = asyncio.Semaphore(0)  # others have all
        assert (await visitor.authorize(visitor.query())).code == 200
        assert (await visitor.refresh(tokens["refresh_token"])).code == 200
        host.name("new")
        use(visitor, host)
        assert (await visitor.authorize(visitor.query())).code == 503
        documents._at_once.release()
        assert (await visitor.authorize(visitor.query())).code == 200  # no failure is remembered


async def test_blocked_place_ends_the_clients_that_answer_there(door, host: Host):
    async with door() as visitor:
        use(visitor, host)
        tokens = await visitor.log_in()
        assert (await visitor.operate("block", "other.example")).json["ended"] == 0
        assert (await visitor.call(tokens["access_token"])).text == "done"
        assert (await visitor.operate("block", "claude.ai")).json["ended"] == 1
        assert (await visitor.call(tokens["access_token"])).code == 401


async def test_client_of_a_blocked_place_is_refused_though_its_access_did_not_end(door, host: Host):
    async with door() as visitor:
        use(visitor, host)
        tokens = await visitor.log_in()
        assert (await visitor.call(tokens["access_token"])).text == "done"
        front = visitor.gateway.assembly.services.front_door
        await front.clients.store.put(StoredClient(id="claude.ai", state="blocked"))
        await front.clients.refresh()
        assert (await visitor.call(tokens["access_token"])).code == 401


async def test_new_hosts_are_limited_and_known_ones_are_not(door, host: Host):
    async with door() as visitor:
        known = Visitor(visitor.gateway)
        use(known, host)
        assert (await known.authorize(known.query())).code == 200
        replies = []
        for number in range(7):
            visitor.client = f"http://127.0.0.1:1/{number}/client.json"
            replies.append(await visitor.authorize(visitor.query()))
        assert [each.code for each in replies[:3]] == [400] * 3
        assert replies[-1].code == 429
        assert replies[-1].header("retry-after") == "1"
        host.name("another")
        use(known, host)
        assert (await known.authorize(known.query())).code == 200


async def test_document_is_cached_as_its_host_says_within_bounds(door, host: Host):
    async with door() as visitor:
        documents = visitor.gateway.assembly.services.front_door.clients._documents
        clock, later = documents._clock, 0
        documents._clock = lambda: clock() + later
        for number, (told, fresh) in enumerate(
            (
                (None, 300),
                ("max-age=1", 300),
                ("no-store, max-age=7200", 300),
                ("max-age=7200", 7_200),
                ("max-age=999999", 86_400),
            )
        ):
            host.name(f"client-{number}")
            host.headers = {} if told is None else {"cache-control": told}
            use(visitor, host)
            fetches = host.fetches
            for passed, expected in ((0, 1), (fresh - 10, 1), (20, 2)):
                later += passed
                assert (await visitor.authorize(visitor.query())).code == 200
                assert host.fetches - fetches == expected, told


async def test_failure_is_cached_for_a_minute(door, host: Host):
    async with door() as visitor:
        use(visitor, host)
        documents = visitor.gateway.assembly.services.front_door.clients._documents
        clock, later = documents._clock, 0
        documents._clock = lambda: clock() + later
        for passed, fetches in ((0, 1), (50, 1), (20, 2)):
            later += passed
            host.raw = web.Response(status=503)
            assert (await visitor.authorize(visitor.query())).code == 400
            assert host.fetches == fetches


async def test_outage_of_the_host_ends_no_login(door, host: Host):
    async with door() as visitor:
        use(visitor, host)
        tokens = await visitor.log_in()
        documents = visitor.gateway.assembly.services.front_door.clients._documents
        clock = documents._clock
        documents._clock = lambda: clock() + 3_600
        host.raw = web.Response(status=503)
        assert (await visitor.refresh(tokens["refresh_token"])).code == 200
        assert (await visitor.authorize(visitor.query())).code == 400
        documents._known.clear()  # as after a restart
        host.raw = web.Response(status=503)
        late = await visitor.refresh(tokens["refresh_token"])
        assert (late.code, late.json["error"]) == (503, "temporarily_unavailable")
        documents._known.clear()
        host.raw = web.Response(status=404)
        gone = await visitor.refresh(tokens["refresh_token"])
        assert (gone.code, gone.json["error"]) == (400, "invalid_client")


async def test_client_that_signs_keeps_its_refresh_token(door, host: Host):
    async with door() as visitor:
        use(visitor, host)
        host.signs()
        code = (await visitor.answer())["code"]
        tokens = (await visitor.redeem(code, **host.proof())).json
        assert (await visitor.call(tokens["access_token"])).text == "done"
        refresh = tokens["refresh_token"]
        again = (await visitor.refresh(refresh, **host.proof())).json
        assert again["refresh_token"] == refresh
        stolen = await visitor.refresh(refresh)
        assert (stolen.code, stolen.json["error"]) == (401, "invalid_client")


async def test_wrong_assertion_proves_nothing(door, host: Host):
    async with door() as visitor:
        use(visitor, host)
        host.signs()
        now = int(time.time())
        public = rsa.generate_private_key(65537, 2048)
        used = host.assertion(jti="half of a character: \ud83d")
        sent = {"grant_type": "refresh_token", "client_assertion_type": BY_JWT}
        first = await visitor.token(**sent, client_assertion=used)
        assert first.json["error"] == "invalid_grant"  # it is the client, without a token
        for assertion in (
            used,
            host.assertion(aud="https://other.example/token"),
            host.assertion(sub="https://claude.ai/other"),
            host.assertion(iss="https://claude.ai/other"),
            host.assertion(exp=now - 120),
            host.assertion(exp=now + 86_400),
            host.assertion(exp=None),
            host.assertion(exp=str(now + 60)),
            host.assertion(key=ec.generate_private_key(ec.SECP256R1())),
            host.assertion(key=public, algorithm="RS256"),
            host.assertion(key="secret" * 8, algorithm="HS256"),
            unsigned(host),
            "x.y.z",
        ):
            reply = await visitor.token(**sent, client_assertion=assertion)
            assert (reply.code, reply.json["error"]) == (401, "invalid_client"), assertion
