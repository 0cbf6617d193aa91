"""Bearer tokens at the door of the endpoint."""

from __future__ import annotations

import json

import pytest

from interlock import Context
from interlock.auth import BearerAuth
from interlock.auth.principal import Principal
from interlock.errors import ConfigError

METADATA = "/.well-known/oauth-protected-resource/mcp"


async def verify(token: str) -> Principal | None:
    if token == "broken":
        raise RuntimeError("the database said hunter2")
    return Principal(token, frozenset({"mcp"})) if token.startswith("user-") else None


@pytest.fixture
def guarded(make):
    return make(verify_token=verify, resource="https://api.example.com/mcp")


def bearer(token):
    return {"authorization": f"Bearer {token}"}


async def test_nobody_is_let_in_without_a_token(guarded):
    for reply in (
        await guarded.call("add", {"a": 1}),
        await guarded.request("POST", body=b"{"),
        await guarded.request("GET", headers={"mcp-session-id": "x"}),
        await guarded.request("DELETE", headers={"mcp-session-id": "x"}),
    ):
        assert reply.code == 401
        challenge = reply.header("www-authenticate") or ""
        assert f'resource_metadata="https://api.example.com{METADATA}"' in challenge
        assert challenge.startswith("Bearer ")


async def test_the_body_is_not_read_before_the_token_is_good(guarded):
    reply = guarded.start("POST", body=[])

    assert (await reply.finished()).code == 401


@pytest.mark.parametrize("token", ["wrong", "User-a"])
async def test_a_wrong_token_is_refused(guarded, token):
    reply = await guarded.call("add", {"a": 1}, headers=bearer(token))

    assert reply.code == 401
    assert 'error="invalid_token"' in (reply.header("www-authenticate") or "")
    assert token.encode() not in reply.body


async def test_two_tokens_are_refused(guarded):
    repeated = [("authorization", "Bearer user-a"), ("authorization", "Bearer user-b")]
    assert (await guarded.call("add", {"a": 1}, repeated=repeated)).code == 400


async def test_a_verifier_that_fails_lets_nobody_in(guarded, caplog):
    reply = await guarded.call("add", {"a": 1}, headers=bearer("broken"))

    assert reply.code == 503
    assert b"hunter2" not in reply.body


async def test_a_good_token_makes_the_principal_of_the_request(server, guarded):
    @server.tool
    async def who(context: Context) -> str:
        return context.principal.id if context.principal else "nobody"

    assert (await guarded.call("who", headers=bearer("user-a"))).text == "user-a"
    client = await guarded.initialize(headers=bearer("user-b"))
    assert (await client.call("who")).text == "user-b"


async def test_a_token_needs_the_scopes(make):
    auth = BearerAuth(
        verify=verify, resource="https://api.example.com/mcp", required_scopes=["mcp", "admin"]
    )
    reply = await make(auth=auth).call("add", {"a": 1}, headers=bearer("user-a"))

    assert reply.code == 403
    challenge = reply.header("www-authenticate") or ""
    assert 'error="insufficient_scope"' in challenge
    assert 'scope="mcp admin"' in challenge


async def test_anybody_may_read_where_tokens_come_from(make):
    auth = BearerAuth(
        verify=verify,
        resource="https://api.example.com/mcp",
        authorization_servers=["https://login.example.com"],
    )
    reply = await make(auth=auth).request("GET", METADATA)

    assert reply.code == 200
    assert reply.json["resource"] == "https://api.example.com/mcp"
    assert reply.json["authorization_servers"] == ["https://login.example.com"]


async def test_there_is_nothing_to_read_without_tokens(http, guarded):
    assert (await http.request("GET", METADATA)).code == 404
    assert (await guarded.request("POST", METADATA, body=b"{}")).code == 404
    assert (await guarded.request("GET", "/elsewhere")).code == 404


async def test_a_state_of_somebody_else_is_refused(guarded):
    capabilities = {"sampling": {}}
    asked = await guarded.call("sample", headers=bearer("user-a"), capabilities=capabilities)
    result = asked.json["result"]
    answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}
    params = {
        "name": "sample",
        "arguments": {},
        "inputResponses": dict.fromkeys(result["inputRequests"], answer),
        "requestState": result["requestState"],
    }
    for user, good in (("user-b", False), ("user-a", True)):
        reply = await guarded.ask(
            "tools/call", params, headers=bearer(user), capabilities=capabilities
        )
        assert ("result" in json.loads(reply.body)) is good


def test_a_verifier_needs_the_name_of_what_it_guards(server):
    with pytest.raises(ConfigError, match="resource="):
        server.asgi(verify_token=verify)


async def test_a_tool_may_need_more_than_the_token_grants(server, make):
    auth = BearerAuth(verify=verify, resource="https://api.example.com/mcp")

    @server.tool
    async def drop_table(context: Context) -> str:
        auth.require(context.principal, ["admin"])
        return "gone"

    reply = await make(auth=auth).call("drop_table", headers=bearer("user-a"))

    assert reply.code == 403
    challenge = reply.header("www-authenticate") or ""
    assert 'error="insufficient_scope"' in challenge
    assert "admin" in challenge
