"""The authorization server of the tests does what clients are tested against: seen by hand."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from time import time
from typing import Any
from urllib.parse import urlencode

import aiohttp
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.authorization import CALLBACK, MACHINE, NATIVE_CLIENT, Protected

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class Hand:
    """A client that is nothing but requests."""

    def __init__(self, server: Protected) -> None:
        self.server = server

    async def post(
        self, path: str, *, auth: tuple[str, str] | None = None, **form: str
    ) -> tuple[int, dict[str, Any]]:
        url = f"{self.server.issuer}{path}"
        headers = {}
        if auth:
            headers["Authorization"] = f"Basic {base64.b64encode(':'.join(auth).encode()).decode()}"
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.post(url, data=form) as reply,
        ):
            return reply.status, json.loads(await reply.text() or "{}")

    async def authorize(self, client: str, **params: str) -> tuple[dict[str, str], str]:
        """Give the callback's query, and the verifier."""
        verifier = secrets.token_urlsafe(32)
        digest = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": client,
            "redirect_uri": CALLBACK,
            "state": "the state",
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "resource": self.server.url,
            "scope": "notes:read",
            **params,
        }
        asked = urlencode({name: value for name, value in query.items() if value})
        return await self.server.browser(f"{self.server.issuer}/auth?{asked}"), verifier

    async def log_in(self, client: str, **params: str) -> dict[str, Any]:
        """Give the answer of the token endpoint."""
        query, verifier = await self.authorize(client, **params)
        status, tokens = await self.post(
            "/token",
            grant_type="authorization_code",
            client_id=client,
            code=query["code"],
            code_verifier=verifier,
            redirect_uri=CALLBACK,
            resource=self.server.url,
        )
        assert status == 200, tokens
        return tokens

    async def refresh(self, client: str, token: str) -> tuple[int, dict[str, Any]]:
        return await self.post(
            "/token",
            grant_type="refresh_token",
            client_id=client,
            refresh_token=token,
            resource=self.server.url,
        )

    async def call(self, token: str, tool: str, **arguments: str) -> tuple[int, str]:
        """Call a tool; give the status, and the text or the challenge."""
        prefix = "io.modelcontextprotocol/"
        meta = {
            f"{prefix}protocolVersion": "2026-07-28",
            f"{prefix}clientInfo": {"name": "hand", "version": "1"},
            f"{prefix}clientCapabilities": {},
        }
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
        }
        async with (
            aiohttp.ClientSession(headers=headers) as http,
            http.post(self.server.url, json=body) as reply,
        ):
            if reply.status != 200:
                return reply.status, reply.headers.get("WWW-Authenticate", "")
            return 200, (await reply.json())["result"]["content"][0]["text"]


@pytest.fixture
def hand(protected_server: Protected) -> Hand:
    return Hand(protected_server)


async def test_client_that_registers_and_logs_in_is_accepted(hand: Hand) -> None:
    client = (await hand.server.register())["client_id"]
    query, _ = await hand.authorize(client)
    tokens = await hand.log_in(client)

    assert (query["state"], query["iss"]) == ("the state", hand.server.issuer)
    assert (tokens["token_type"], tokens["expires_in"]) == ("Bearer", 3600)
    assert await hand.call(tokens["access_token"], "who") == (200, "ada: notes:read")
    assert "/interaction/" in "".join(hand.server.browser.visited)  # there were pages to fill


async def test_user_who_denies_the_authorization_gets_access_denied(hand: Hand) -> None:
    client = (await hand.server.register())["client_id"]
    hand.server.browser.refuses = True
    query, _ = await hand.authorize(client)

    assert query["error"] == "access_denied"
    assert query["iss"] == hand.server.issuer


async def test_authorization_without_a_code_challenge_is_refused(hand: Hand) -> None:
    client = (await hand.server.register())["client_id"]
    query, _ = await hand.authorize(client, code_challenge="", code_challenge_method="")

    assert query["error"] == "invalid_request"


async def test_authorization_for_another_resource_is_refused(hand: Hand) -> None:
    client = (await hand.server.register())["client_id"]
    query, _ = await hand.authorize(client, resource="http://127.0.0.1:1/mcp")

    assert query["error"] == "invalid_target"


async def test_token_with_too_few_scopes_is_refused_with_the_required_ones(hand: Hand) -> None:
    client = (await hand.server.register())["client_id"]
    little = (await hand.log_in(client))["access_token"]
    much = (await hand.log_in(client, scope="notes:read notes:write"))["access_token"]

    status, challenge = await hand.call(little, "write", text="tea")
    assert status == 403
    assert 'error="insufficient_scope"' in challenge
    assert 'scope="notes:read notes:write"' in challenge
    assert await hand.call(much, "write", text="tea") == (200, "wrote tea")


async def test_refresh_token_works_once(hand: Hand) -> None:
    client = (await hand.server.register())["client_id"]
    first = await hand.log_in(client)
    status, second = await hand.refresh(client, first["refresh_token"])
    again = await hand.refresh(client, first["refresh_token"])

    assert status == 200
    assert second["refresh_token"] != first["refresh_token"]
    assert (await hand.call(second["access_token"], "who"))[0] == 200
    assert (again[0], again[1]["error"]) == (400, "invalid_grant")


async def test_expired_token_is_refused_and_can_be_refreshed(hand: Hand) -> None:
    client = (await hand.server.register())["client_id"]
    await hand.server.wish(expired=1)
    expired = await hand.log_in(client)
    _, fresh = await hand.refresh(client, expired["refresh_token"])

    status, challenge = await hand.call(expired["access_token"], "who")
    assert status == 401
    assert 'error="invalid_token"' in challenge
    assert (await hand.call(fresh["access_token"], "who"))[0] == 200


async def test_a_revoked_refresh_token_is_refused(hand: Hand) -> None:
    client = (await hand.server.register())["client_id"]
    one, other = await hand.log_in(client), await hand.log_in(client)
    form = {"client_id": client, "token": one["refresh_token"]}
    revoked = await hand.post("/token/revocation", **form)
    after = await hand.refresh(client, one["refresh_token"])
    await hand.server.wish(revoke=True)
    at_last = await hand.refresh(client, other["refresh_token"])

    assert revoked[0] == 200
    assert after[1]["error"] == at_last[1]["error"] == "invalid_grant"
    assert (await hand.server.done())["invalid_grant"] == 2


async def test_a_program_gets_tokens_with_its_secret(hand: Hand) -> None:
    client = await hand.server.register(**MACHINE, token_endpoint_auth_method="client_secret_basic")
    form = {"grant_type": "client_credentials", "scope": "notes:read", "resource": hand.server.url}
    wrong = await hand.post("/token", auth=(client["client_id"], "wrong"), **form)
    status, tokens = await hand.post(
        "/token", auth=(client["client_id"], client["client_secret"]), **form
    )

    assert (wrong[0], wrong[1]["error"]) == (401, "invalid_client")
    assert status == 200
    told = await hand.call(tokens["access_token"], "who")
    assert told == (200, f"{client['client_id']}: notes:read")


async def test_a_program_gets_tokens_with_its_key(hand: Hand) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    client = await hand.server.register(
        **MACHINE, token_endpoint_auth_method="private_key_jwt", jwks={"keys": [public]}
    )
    id = client["client_id"]
    claims = {"iss": id, "sub": id, "aud": hand.server.issuer, "jti": "1", "exp": time() + 60}
    status, tokens = await hand.post(
        "/token",
        grant_type="client_credentials",
        scope="notes:read",
        resource=hand.server.url,
        client_assertion_type=ASSERTION,
        client_assertion=jwt.encode(claims, key, algorithm="ES256"),
    )

    assert status == 200, tokens
    assert await hand.call(tokens["access_token"], "who") == (200, f"{id}: notes:read")


async def test_a_client_can_be_a_document_on_the_web(hand: Hand) -> None:
    client = "https://client.example.com/metadata.json"
    document = {**NATIVE_CLIENT, "client_id": client}
    await hand.server.wish(documents={client: document})
    tokens = await hand.log_in(client)

    assert (await hand.call(tokens["access_token"], "who"))[0] == 200
    assert "registrations" not in await hand.server.done()
