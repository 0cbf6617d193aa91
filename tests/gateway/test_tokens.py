"""Tokens of an issuer at a gateway: who they let in, and what their groups may do."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.gateway.conftest import offering

AUDIENCE = "https://tools.example.com/mcp"


class Issuer:
    """An authorization server with one key.

    Attributes:
        url: Its identifier.
        is_down: It answers its key set with an error.
    """

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.url = ""
        self.is_down = False

    def token(self, **claims: Any) -> str:
        now = int(time.time())
        given = {"iss": self.url, "sub": "4711", "aud": AUDIENCE, "exp": now + 600} | claims
        return jwt.encode(given, self.key, "ES256", {"kid": "k"})

    async def keys(self, _: web.Request) -> web.Response:
        public = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        return web.json_response(
            {"keys": [public | {"kid": "k", "alg": "ES256"}]}, status=500 if self.is_down else 200
        )


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    found = Issuer()
    app = web.Application()
    app.router.add_get("/jwks", found.keys)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    found.url = f"http://127.0.0.1:{port}"
    yield found
    await runner.cleanup()


def settings(issuer: Issuer) -> dict[str, Any]:
    rules = [
        {"id": "r", "effect": "allow", "who": ["group:support"], "tools": ["crm:*"]},
        {"id": "de", "effect": "allow", "who": ["*"], "tools": ["time:*"],
         "claims": {"country": {"const": "de"}}},
    ]  # fmt: skip
    known = {
        "issuer": issuer.url,
        "audience": AUDIENCE,
        "jwksUrl": f"{issuer.url}/jwks",
        "groups": "groups",
        "scopes": {"support": ["mcp:*"], "staff": ["mcp:*"]},
    }
    return {"auth": {"issuers": [known]}, "policy": {"rules": rules}}


@pytest.mark.slow("fills a database")
async def test_groups_scopes_and_claims_of_a_token_determine_its_rights(issuer, running):
    servers = {"crm": offering("x"), "time": offering("now")}
    async with running(settings(issuer), **servers) as gateway:
        support = issuer.token(groups=["support"])
        german = issuer.token(groups=["staff"], country="de")
        assert await gateway.names(support) == ["crm__x"]
        assert await gateway.names(german) == ["time__now"]
        assert await gateway.names(issuer.token(groups=["staff"])) == []
        assert (await gateway.call("crm__x", issuer.token(groups=["other"]))).code == 403


@pytest.mark.slow("fills a database")
async def test_token_that_is_not_valid_for_the_gateway_is_refused_like_a_wrong_key(issuer, running):
    now = int(time.time())
    other = Issuer()
    other.url = issuer.url
    async with running(settings(issuer), crm=offering("x")) as gateway:
        bodies = {
            (reply.code, reply.body)
            for reply in [
                await gateway.call("crm__x", token)
                for token in (
                    issuer.token(groups=["support"], aud="https://other.example"),
                    issuer.token(groups=["support"], iss="https://other.example"),
                    issuer.token(groups=["support"], exp=now - 120),
                    issuer.token(groups=["support"], nbf=now + 300),
                    other.token(groups=["support"]),
                    "ilk_wrong",
                )
            ]
        }
    ((code, _),) = bodies
    assert code == 401


@pytest.mark.slow("fills a database")
async def test_token_cannot_be_verified_while_the_issuer_is_down(issuer, running):
    issuer.is_down = True
    async with running(settings(issuer), crm=offering("x")) as gateway:
        reply = await gateway.call("crm__x", issuer.token(groups=["support"]))
        counted = gateway.assembly.services.metrics.refusals

    assert sum(counted.values()) == 1
    assert reply.code == 503
    assert reply.json["error"]["data"]["reason"] == "auth_unavailable"
    assert reply.header("retry-after")
