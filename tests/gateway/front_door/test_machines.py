"""Programs without a person at a browser, and organisations that decide for their people."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest

from interlock.gateway.front_door.metadata import BY_JWT
from tests.gateway.conftest import RESOURCE, offering
from tests.gateway.front_door.visitor import ORIGIN, Visitor
from tests.support.oidc import OidcIssuer

pytestmark = pytest.mark.slow("fills a database")


async def test_a_key_is_the_id_and_the_secret_of_a_program(door):
    async with door() as visitor:
        key = await visitor.gateway.key("ci", "mcp:read")
        form = {"grant_type": "client_credentials", "client_id": key.split("_")[1]}
        tokens = await visitor.token(**form, client_secret=key)
        assert (tokens.code, tokens.json["scope"]) == (200, "mcp:read")
        assert "refresh_token" not in tokens.json
        for wrong in (f"{key[:-1]}{'xy'[key.endswith('x')]}", "", "x"):
            refused = await visitor.token(**form, client_secret=wrong)
            assert (refused.code, refused.json["error"]) == (401, "invalid_client")
        wider = await visitor.token(**form, client_secret=key, scope="mcp:* admin:read")
        assert wider.json["scope"] == "mcp:read"
        keys = visitor.gateway.keys
        (stored,) = [each for each in await keys.list() if each.user == "ci"]
        await keys.revoke(stored.id)
        await visitor.gateway.assembly.services.keys.refresh()
        assert (await visitor.token(**form, client_secret=key)).code == 401
        await visitor.gateway.assembly.services.front_door.ring.refresh()
        assert (await visitor.call(tokens.json["access_token"])).code == 401


async def test_processes_of_one_key_do_not_end_each_others_access(door):
    async with door() as visitor:
        key = await visitor.gateway.key("ci")
        form = {"grant_type": "client_credentials", "client_id": key.split("_")[1]}
        tokens = [await visitor.token(**form, client_secret=key) for _ in range(25)]
        read = await visitor.token(**form, client_secret=key, scope="mcp:read")
        assert read.json["scope"] == "mcp:read"
        for each in tokens:
            assert (await visitor.call(each.json["access_token"])).text == "done"
        front = visitor.gateway.assembly.services.front_door
        assert len(await front.store.list(user="user:ci")) == 2


@pytest.fixture
def enterprise(running: Callable[..., Any]) -> Callable[..., Any]:
    """Run a gateway that accepts statements of an issuer."""

    @asynccontextmanager
    async def run(*accepts: str) -> AsyncIterator[tuple[Visitor, OidcIssuer]]:
        issuer = OidcIssuer()
        await issuer.open()
        entry = {"issuer": issuer.url, "scopes": {"*": ["mcp:*"]}, "accepts": list(accepts)}
        auth = {"oauth": {}, "issuers": [entry]}
        try:
            async with running({"publicUrl": RESOURCE, "auth": auth}, crm=offering("x")) as gateway:
                visitor = Visitor(gateway)
                await visitor.register()
                yield visitor, issuer
        finally:
            await issuer.close()

    return run


def statement(issuer: OidcIssuer, typ: str, **claims: Any) -> str:
    now = int(time.time())
    usual = {"iss": issuer.url, "sub": "4711", "aud": ORIGIN, "iat": now, "exp": now + 300}
    told = {**usual, "jti": str(time.perf_counter_ns()), **claims}
    headers = {"kid": "k", "typ": typ}
    kept = {name: value for name, value in told.items() if value is not None}
    return jwt.encode(kept, issuer._key, "ES256", headers)


JAG = "oauth-id-jag+jwt"


async def test_issuer_lets_a_client_act_for_a_person(enterprise):
    async with enterprise("id-jag") as (visitor, issuer):
        about = await visitor.gateway.http.request(
            "GET", "/.well-known/oauth-authorization-server", b"", {}
        )
        assert about.json["authorization_grant_profiles_supported"]

        def jag(**claims: Any) -> dict[str, str]:
            told = {"client_id": visitor.client, **claims}
            return {"grant_type": BY_JWT, "assertion": statement(issuer, JAG, **told)}

        good = jag(scope="mcp:read")
        tokens = await visitor.token(**good)
        assert (tokens.code, tokens.json["scope"]) == (200, "mcp:read")
        assert "refresh_token" not in tokens.json
        now = int(time.time())
        wrong = [
            good,
            jag(aud="https://other.example"),
            jag(aud=[ORIGIN, "https://other.example"]),
            jag(client_id="https://other.example/client"),
            jag(client_id=None),
            jag(exp=now - 120),
            jag(exp=now + 86_400),
            jag(jti=None),
            jag(iss="https://other.example"),
            jag(cnf={"jkt": "x"}),
            {"grant_type": BY_JWT, "assertion": statement(issuer, "JWT", client_id=visitor.client)},
            {"grant_type": BY_JWT, "assertion": "x.y.z"},
            jag(exp=str(now + 300)),
            jag(exp=True),
        ]
        for each in wrong:
            refused = await visitor.token(**each)
            assert (refused.code, refused.json["error"]) == (400, "invalid_grant"), each
        elsewhere = await visitor.token(**jag(resource="https://other.example/mcp"))
        assert elsewhere.json["error"] == "invalid_target"


async def test_workload_is_its_own_client(enterprise):
    async with enterprise("workload") as (visitor, issuer):
        visitor.client = ""
        form = {"grant_type": BY_JWT, "assertion": statement(issuer, "JWT", sub="repo:a/b")}
        tokens = await visitor.token(**form)
        assert tokens.code == 200, tokens.body
        assert (await visitor.call(tokens.json["access_token"])).text == "done"
        assert (await visitor.token(**form)).json["error"] == "invalid_grant"


async def test_statement_of_an_issuer_that_may_not_make_it_is_refused(enterprise):
    async with enterprise("id-jag") as (visitor, issuer):
        visitor.client = ""
        form = {"grant_type": BY_JWT, "assertion": statement(issuer, "JWT", sub="repo:a/b")}
        refused = await visitor.token(**form)
        assert (refused.code, refused.json["error"]) == (400, "invalid_grant")
