"""Token requests."""

from __future__ import annotations

import json
from typing import Any

from interlock.oauth import ClientIdentity
from interlock.oauth import tokens as tokens_module
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import ServerMetadata
from interlock.oauth.fetcher import FetchedResponse, Fetcher
from interlock.oauth.storage import Tokens
from interlock.oauth.tokens import request_tokens


class Giving(Fetcher):
    """A token endpoint that always returns the same tokens."""

    async def post(self, url: str, **_: Any) -> FetchedResponse:
        answer = {"access_token": "a", "token_type": "bearer", "expires_in": 60, "scope": "read"}
        return FetchedResponse(200, {}, json.dumps(answer).encode(), url)


async def test_request_tokens_keeps_issuer_resource_and_client_verbatim(monkeypatch: Any):
    monkeypatch.setattr(tokens_module, "time", lambda: 1000.0)
    server = ServerMetadata("https://AS.example/A%2Fb", token_endpoint="https://AS.example/T")
    found = Discovery("https://MCP.example/mcp/", None, server)
    grant = {"grant_type": "refresh_token", "refresh_token": "r"}

    tokens = await request_tokens(Giving(), found, ClientIdentity(id="Me"), grant, "read write")

    assert isinstance(tokens, Tokens)
    assert {name: getattr(tokens, name) for name in tokens.__struct_fields__} == {
        "access_token": "a",
        "refresh_token": "r",
        "expires_at": 1060.0,
        "received_at": 1000.0,
        "scope": "read",
        "issuer": "https://AS.example/A%2Fb",
        "resource": "https://MCP.example/mcp/",
        "client_id": "Me",
        "token_endpoint": "https://AS.example/T",
        "auth_method": "none",
        "missing_scopes": "",
        "dpop_key": "",
    }
