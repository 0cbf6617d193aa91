"""Exchanging an ID token at a company's identity provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from interlock.errors import AuthError, HttpError
from interlock.oauth import ClientIdentity, Fetcher, JwtBearer, TokenExchange
from tests.oauth.conftest import World
from tests.servers.authorization_server import Site, refused
from tests.support.rows import each_row

ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "head.user.signature"


@pytest.fixture
async def provider() -> AsyncIterator[Site]:
    site = Site()
    await site.open()
    answers(site, access_token="head.jag.signature", issued_token_type=ID_JAG)
    yield site
    await site.close()


def answers(provider: Site, **answer: Any) -> None:
    async def reply(request: Any) -> web.Response:
        return web.json_response(answer)

    provider.replies["/token"] = reply


def exchange(provider: Site, **client: Any) -> TokenExchange:
    async def id_token() -> str:
        return ID_TOKEN

    return TokenExchange(
        f"{provider.origin}/token",
        client=ClientIdentity(**{"id": "us", "issuer": provider.origin, **client}),
        id_token=id_token,
        fetcher=Fetcher(provider.origin),
    )


async def test_an_id_token_is_exchanged_for_a_token_of_another_authorization_server(
    provider: Site, world: World
):
    world.authorization.clients["us"] = "s3cr3t"
    del world.authorization.metadata["token_endpoint_auth_methods_supported"]
    auth = JwtBearer(
        world.server.url,
        assertion=exchange(provider),
        client=ClientIdentity(id="us", secret="s3cr3t"),
        store=world.store,
    )

    assert await world.call(auth)

    assert provider.sent("/token") == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": ID_JAG,
            "audience": world.authorization.issuer,
            "resource": world.server.url,
            "subject_token": ID_TOKEN,
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "client_id": "us",
        }
    ]
    assert world.authorization.sent("/token")[0]["assertion"] == "head.jag.signature"
    assert ID_TOKEN not in json.dumps([seen.sent for seen in world.authorization.requests])


async def test_a_refusal_of_the_identity_provider_does_not_show_the_id_token(provider: Site):
    async def reply(request: Any) -> web.Response:
        return refused("access_denied", error_description=f"not with {ID_TOKEN} or s3cr3t")

    provider.replies["/token"] = reply

    with pytest.raises(AuthError, match="gave no token: access_denied") as raised:
        await exchange(provider, secret="s3cr3t")("https://as.example", "https://mcp.example/")

    assert not hasattr(raised.value, "__notes__")


@each_row(
    "answer",
    [
        {"access_token": "a", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"},
        {"access_token": "a"},
        {"access_token": "a b", "issued_token_type": ID_JAG},
        {"issued_token_type": ID_JAG},
    ],
    ids=["another type", "no type", "not a token", "no token"],
)
async def test_an_answer_without_the_requested_token_is_an_error(
    provider: Site, answer: dict[str, str]
):
    answers(provider, **answer)

    with pytest.raises((AuthError, HttpError)):
        await exchange(provider)("https://as.example", "https://mcp.example/")


def test_a_token_endpoint_without_https_is_an_error():
    with pytest.raises(AuthError, match="the token endpoint of the identity provider"):
        TokenExchange(
            "ftp://idp.example/token",
            client=ClientIdentity(id="us"),
            id_token=None,  # type: ignore[arg-type]
        )
