"""Bearer tokens at the door of the endpoint."""

from __future__ import annotations

import asyncio
import json

import pytest

from interlock import Context
from interlock.auth import ApiKeyAuth, BearerAuth, Principal
from interlock.errors import AuthRequired, ConfigError
from interlock.server.http import app

METADATA = "/.well-known/oauth-protected-resource/mcp"


async def verify(token: str) -> Principal | None:
    if token == "broken":
        raise RuntimeError("the database said hunter2")
    scopes = {"mcp", "admin"} if token == "user-admin" else {"mcp"}
    return Principal(token, frozenset(scopes)) if token.startswith("user-") else None


@pytest.fixture
def guarded(make):
    return make(verify_token=verify, resource="https://api.example.com/mcp")


def bearer(token):
    return {"authorization": f"Bearer {token}"}


async def test_request_without_a_token_is_refused(guarded):
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


async def test_body_is_read_only_after_the_token_was_accepted(guarded):
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


async def test_failing_verifier_refuses_every_caller(guarded, caplog):
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


async def test_an_authenticator_that_hangs_is_stopped(server, make, monkeypatch):
    monkeypatch.setattr(app, "AUTH_DEADLINE", 0.0)

    async def verify(token: str) -> Principal | None:
        return await asyncio.get_running_loop().create_future()

    http = make(verify_token=verify, resource="https://api.example.com/mcp")
    reply = await http.call("add", {"a": 1}, headers=bearer("user-a"))

    assert reply.code == 503
    assert reply.json["error"]["data"]["reason"] == "auth_unavailable"
    assert reply.task.cancelling() == 0


async def test_a_request_with_a_known_token_starts_no_timer(server, make, monkeypatch):
    http = make(verify_token=verify, resource="https://api.example.com/mcp")
    await http.call("add", {"a": 1}, headers=bearer("user-a"))
    monkeypatch.setattr(http.app._requests, "is_ticking", True)
    call = {"name": "add", "arguments": {"a": 1}}
    reply = http.begin("tools/call", call, headers=bearer("user-a"))
    monkeypatch.setattr(asyncio.get_running_loop(), "call_at", None)
    for _ in range(3):
        await asyncio.sleep(0)

    assert reply.task.done()
    assert reply.text == "2"


async def test_an_api_key_identifies_the_caller(server, make):
    @server.tool
    async def who(context: Context) -> str:
        return f"{context.principal.id} {context.principal.key_id}"

    async def verify_key(key: str) -> Principal | None:
        return Principal("anna", key_id="7fk2") if key == "secret" else None

    http = make(auth=ApiKeyAuth(verify=verify_key))
    assert (await http.call("who", headers={"x-api-key": "secret"})).text == "anna 7fk2"

    refused = await http.call("who", headers={"x-api-key": "wrong"})
    assert (refused.code, refused.json["error"]["data"]) == (401, {"reason": "bad_credential"})
    assert refused.header("www-authenticate") == 'ApiKey header="X-API-Key"'
    assert (await http.request("GET", METADATA)).code == 404


async def test_any_object_with_the_methods_of_an_authenticator_is_accepted(server, make):
    class ByAddress:
        challenge = "Address"

        def published(self, path):
            return b"{}" if path == "/about" else None

        async def authenticate(self, headers, peer):
            if (b"x-known", b"yes") not in headers:
                raise AuthRequired("unknown")
            return Principal(peer)

    @server.tool
    async def who(context: Context) -> str:
        return context.principal.id

    http = make(auth=ByAddress())
    assert (await http.call("who", headers={"x-known": "yes"})).text == "127.0.0.1"
    assert (await http.request("GET", "/about")).json == {}
    refused = await http.call("who")
    assert (refused.code, refused.header("www-authenticate")) == (401, "Address")


async def test_a_token_needs_the_scopes(make):
    auth = BearerAuth(
        verify=verify, resource="https://api.example.com/mcp", required_scopes=["mcp", "admin"]
    )
    reply = await make(auth=auth).call("add", {"a": 1}, headers=bearer("user-a"))

    assert reply.code == 403
    challenge = reply.header("www-authenticate") or ""
    assert 'error="insufficient_scope"' in challenge
    assert 'scope="mcp admin"' in challenge


async def test_metadata_is_served_without_authentication(make):
    auth = BearerAuth(
        verify=verify,
        resource="https://api.example.com/mcp",
        authorization_servers=["https://login.example.com"],
    )
    reply = await make(auth=auth).request("GET", METADATA)

    assert reply.code == 200
    assert reply.json["resource"] == "https://api.example.com/mcp"
    assert reply.json["authorization_servers"] == ["https://login.example.com"]


async def test_metadata_without_authentication_is_not_found(http, guarded):
    assert (await http.request("GET", METADATA)).code == 404
    assert (await guarded.request("POST", METADATA, body=b"{}")).code == 404
    assert (await guarded.request("GET", "/elsewhere")).code == 404


async def test_the_state_of_another_principal_is_refused(guarded):
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


def test_verify_token_without_resource_is_refused(server):
    with pytest.raises(ConfigError, match="resource="):
        server.asgi(verify_token=verify)


async def test_a_tool_with_scopes_answers_403_so_that_the_client_can_request_them(server, make):
    auth = BearerAuth(
        verify=verify, resource="https://api.example.com/mcp", required_scopes=["mcp"]
    )
    server.tool(lambda: "gone", name="drop_table", scopes=["admin"])
    protected, open_to_all = make(auth=auth), make()
    session = await protected.initialize(headers=bearer("user-a"))
    refused = [
        await protected.call("drop_table", headers=bearer("user-a")),
        await session.call("drop_table"),
    ]

    for reply in refused:
        assert reply.code == 403
        assert reply.header("www-authenticate") == (
            'Bearer error="insufficient_scope", '
            f'resource_metadata="https://api.example.com{METADATA}", scope="mcp admin"'
        )
        assert reply.json["error"]["data"]["reason"] == "insufficient_scope"
    reply = await open_to_all.call("drop_table")
    assert (reply.code, reply.header("www-authenticate")) == (403, None)
    assert "callers of this endpoint are not authenticated" in reply.json["error"]["message"]
    assert (await protected.call("drop_table", headers=bearer("user-admin"))).text == "gone"


async def test_a_tool_may_require_scopes_itself(server, make):
    auth = BearerAuth(verify=verify, resource="https://api.example.com/mcp")

    @server.tool
    async def drop_table(context: Context) -> str:
        auth.require(context.principal, ["admin"])
        return "gone"

    reply = await make(auth=auth).call("drop_table", headers=bearer("user-a"))

    assert reply.code == 403
    assert 'scope="admin"' in (reply.header("www-authenticate") or "")


# Credentials that end


@pytest.fixture
def keyed(make):
    async def verify_key(key: str) -> Principal | None:
        return Principal("user:anna", key_id=key.removesuffix("-key"))

    return make(auth=ApiKeyAuth(verify=verify_key))


def key(id: str) -> dict[str, str]:
    return {"x-api-key": f"{id}-key"}


@pytest.mark.parametrize("tool", ["hold", "tell_and_hold"])
async def test_call_of_a_key_that_ends_is_cancelled_and_others_continue(gate, keyed, tool: str):
    revoked = keyed.begin(
        "tools/call", {"name": tool, "_meta": {"progressToken": 1}}, headers=key("a")
    )
    await gate.entered.wait()
    kept = keyed.begin("tools/call", {"name": "hold"}, headers=key("b"))
    await asyncio.sleep(0)

    keyed.app.end_credentials({"a"})
    await revoked.finished()
    assert gate.cancelled.is_set()
    if tool == "hold":
        assert revoked.code == 401
        assert revoked.json["error"]["data"] == {"reason": "bad_credential"}
        assert revoked.header("www-authenticate")
    else:  # the reply had begun
        assert b'"result"' not in revoked.body

    gate.opened.set()
    assert (await kept.finished()).text == "done"


async def test_session_and_its_calls_end_with_their_key(gate, keyed):
    client = await keyed.initialize(headers=key("a"))
    other = await keyed.initialize(headers=key("b"))
    stream, call = client.listen(), client.begin_call("hold")
    await gate.entered.wait()

    keyed.app.end_credentials({"a"})

    await stream.finished()
    await call.finished()
    assert gate.cancelled.is_set()
    assert b'"result"' not in call.body
    assert (await client.call("add", {"a": 1})).code == 404
    assert (await other.call("add", {"a": 1})).text == "2"


async def test_subscription_ends_with_its_key(keyed):
    wanted = {"notifications": {"toolsListChanged": True}}
    stream = keyed.begin("subscriptions/listen", wanted, headers=key("a"))
    await stream.message()

    keyed.app.end_credentials({"a"})

    await stream.finished()
