"""A user's login for an API: at the authorization server that its document names."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from interlock.config.openapi import ApiLogin
from interlock.errors import AuthError
from interlock.oauth.authorization import AuthorizationRequest
from interlock.oauth.storage import MemoryTokenStore
from interlock.openapi.logins import UserLogin
from interlock.types import JsonObject
from tests.openapi.scripted_api import Received, ScriptedApi, http, scripted_api


@pytest.fixture
async def issuer() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as api:
        api.answers = [lambda request: _answer(api, request)]
        yield api


def _answer(api: ScriptedApi, request: Received) -> bytes:
    match request.target:
        case "/.well-known/openid-configuration":
            body: JsonObject = {
                "issuer": api.url,
                "authorization_endpoint": f"{api.url}/authorize",
                "token_endpoint": f"{api.url}/token",
                "code_challenge_methods_supported": ["S256"],
            }
        case "/token":
            body = {"access_token": "token", "token_type": "Bearer", "refresh_token": "refresh"}
        case _:
            return http(404)
    return http(200, json.dumps(body).encode(), Content_Type="application/json")


def login(scheme: JsonObject, url: str, asked: list[AuthorizationRequest]) -> UserLogin:
    async def ask(request: AuthorizationRequest) -> Mapping[str, str]:
        asked.append(request)
        return {"code": "code", "state": request.state}

    return UserLogin(
        scheme,
        ApiLogin(client_id="me"),
        url,
        ("orders:read",),
        store=MemoryTokenStore(),
        ask=ask,
        redirect_uri="http://127.0.0.1:1/callback",
    )


@pytest.mark.parametrize("kind", ["oauth2", "openIdConnect"])
async def test_a_login_asks_at_the_server_of_the_scheme_and_gets_a_token(
    issuer: ScriptedApi, kind: str
) -> None:
    flow = {"authorizationUrl": f"{issuer.url}/authorize", "tokenUrl": f"{issuer.url}/token"}
    scheme: dict[str, Any] = {
        "type": kind,
        "flows": {"authorizationCode": flow},
        "openIdConnectUrl": f"{issuer.url}/.well-known/openid-configuration",
    }
    asked: list[AuthorizationRequest] = []
    source = login(scheme, issuer.url, asked)
    await source.login()
    query = parse_qs(urlsplit(asked[0].url).query)
    sent = parse_qs(issuer.received[-1].body.decode())

    assert source.token == "token"
    assert query["scope"] == ["orders:read"]
    assert query["code_challenge_method"] == ["S256"]
    assert sent["code"] == ["code"]
    assert "code_verifier" in sent


async def test_metadata_of_another_issuer_is_refused(issuer: ScriptedApi) -> None:
    url = f"{issuer.url}/.well-known/openid-configuration"
    issuer.answers = [
        http(200, json.dumps({"issuer": "https://other.example"}).encode()),
    ]

    with pytest.raises(AuthError, match="another issuer"):
        await login({"type": "openIdConnect", "openIdConnectUrl": url}, issuer.url, []).login()


async def test_a_scheme_without_a_code_flow_cannot_be_logged_in_to(issuer: ScriptedApi) -> None:
    with pytest.raises(AuthError, match="no authorizationCode flow"):
        await login({"type": "oauth2", "flows": {}}, issuer.url, []).login()
