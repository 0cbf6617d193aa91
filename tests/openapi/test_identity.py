"""Credentials by security scheme: where they are sent, and where they never appear."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from interlock import Client
from interlock.config.openapi import ApiClient, ApiLogin, ApiPassword, ApiSecret
from interlock.errors import ConfigError
from interlock.oauth.storage import Tokens, UserTokenStore
from interlock.openapi.identity import Identity, mask
from interlock.openapi.server import OpenApiServer
from interlock.types import JsonObject
from tests.openapi.scripted_api import Received, ScriptedApi, http, scripted_api
from tests.support.rows import each_row

CANARY = "canary/of the+key"
SCHEMES: dict[str, JsonObject] = {
    "header": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "token": {"type": "http", "scheme": "Token"},
    "basic": {"type": "http", "scheme": "basic"},
    "client": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "{}/token"}}},
    "login": {
        "type": "oauth2",
        "flows": {
            "authorizationCode": {"authorizationUrl": "{}/authorize", "tokenUrl": "{}/token"}
        },
    },
}


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as api:
        yield api


def document(url: str, security: list[dict[str, list[str]]]) -> JsonObject:
    found: JsonObject = json.loads(json.dumps(SCHEMES).replace("{}", url))
    return {
        "openapi": "3.1.0",
        "info": {"title": "T", "version": "1"},
        "components": {"securitySchemes": found},
        "paths": {
            "/things": {
                "get": {
                    "operationId": "list",
                    "security": security,
                    "parameters": [
                        {"name": "key", "in": "query", "schema": {"type": "string"}},
                        {"name": "limit", "in": "query", "schema": {"type": "integer"}},
                    ],
                }
            }
        },
    }


def server(api: ScriptedApi, *names: str, auth: dict[str, Any], **options: Any) -> OpenApiServer:
    security: list[dict[str, list[str]]] = [{name: [] for name in names}]
    return OpenApiServer(
        document=document(api.url, security),
        base_url=api.url,
        tools={"list": "list"},
        auth=auth,
        **options,
    )


async def received(served: OpenApiServer, api: ScriptedApi, **arguments: Any) -> Received:
    async with Client.memory(served) as client:
        await client.call_tool("list", arguments)
    return api.received[-1]


@each_row(
    ("name", "credential", "header", "value"),
    [
        ("header", CANARY, "x-key", CANARY),
        ("cookie", "abc", "cookie", "sid=abc"),
        ("bearer", "abc", "authorization", "Bearer abc"),
        ("token", "abc", "authorization", "Token abc"),
        (
            "basic",
            {"username": "u", "password": "p"},
            "authorization",
            f"Basic {b64encode(b'u:p').decode()}",
        ),
        ("client", "abc", "authorization", "Bearer abc"),
    ],
)
async def test_a_credential_is_sent_where_its_scheme_says(
    api: ScriptedApi, name: str, credential: Any, header: str, value: str
) -> None:
    got = await received(server(api, name, auth={name: credential}), api)

    assert got.headers[header] == value


async def test_a_key_in_the_query_follows_the_arguments_and_is_not_offered(
    api: ScriptedApi,
) -> None:
    served = server(api, "query", auth={"query": CANARY})
    got = await received(served, api, limit=1)

    assert got.target == "/things?limit=1&key=canary%2Fof%20the%2Bkey"
    assert set(served.tools.by_name["list"].definition["inputSchema"]["properties"]) == {"limit"}


async def test_the_first_alternative_with_all_credentials_is_used() -> None:
    security = [{"header": [], "query": []}, {"cookie": []}, {"bearer": []}]
    auth = {"header": ApiSecret("a"), "cookie": ApiSecret("b"), "bearer": ApiSecret("c")}
    identity = Identity(SCHEMES, auth, "https://a.example", {})
    credentials = await identity.credentials(security)

    assert (credentials.headers, credentials.cookies) == ({}, {"sid": "b"})


async def test_an_operation_without_security_gets_no_credentials(api: ScriptedApi) -> None:
    served = server(api, auth={"header": CANARY})

    assert "x-key" not in (await received(served, api)).headers


@each_row(
    ("name", "credential", "problem"),
    [
        ("header", ApiPassword("u", "p"), "a user and a password, but the scheme is apiKey"),
        ("header", ApiClient(client_id="a", client_secret="b"), "a client with a secret, but"),
        ("basic", ApiLogin(), "is a login, but the scheme is http basic"),
        ("header", ApiSecret("a\nb"), "a character that a header cannot have"),
        ("gone", ApiSecret("a"), "is not a security scheme of the document"),
    ],
)
def test_credential_of_another_kind_than_its_scheme_is_refused(
    name: str, credential: Any, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        Identity(SCHEMES, {name: credential}, "https://a.example", {})


@each_row("name", ["Host", "Content-Length", "a b", "X\r\nY"])
def test_key_in_a_connection_header_such_as_host_is_refused(name: str) -> None:
    scheme = {"type": "apiKey", "in": "header", "name": name}

    with pytest.raises(ConfigError, match="names no header"):
        Identity({"k": scheme}, {"k": ApiSecret("abc")}, "https://a.example", {})


def test_credentials_without_tls_are_refused_for_another_machine() -> None:
    options: dict[str, Any] = {
        "document": document("http://a.example", []),
        "base_url": "http://a.example",
        "tools": {},
        "auth": {"header": "abc"},
    }
    with pytest.raises(ConfigError, match='add "allowHttp"'):
        OpenApiServer(**options)

    OpenApiServer(**options, allow_http=True)


async def test_a_secret_appears_in_no_result_error_preview_log_or_repr(
    api: ScriptedApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    served = server(
        api,
        "query",
        "basic",
        auth={"query": CANARY, "basic": {"username": "u", "password": CANARY}},
    )
    shown = [repr(served._settings)]
    for status in (200, 302, 404, 500):

        def repeat(request: Received, status: int = status) -> bytes:
            told = f"{request.target} {request.headers['authorization']} {CANARY}"
            body = json.dumps({"message": told}).encode()
            return http(
                status, body, Content_Type="application/json", ETag=told, Location=f"/x?{CANARY}"
            )

        api.answers = [repeat]
        async with Client.memory(served) as client:
            shown.append(str(await client.call_tool("list")))
            shown.append(str(await client.list_tools()))
    shown.append(str(await served.tools.by_name["list"].preview({})))
    text = " ".join([*shown, caplog.text])

    assert "***" in text
    for secret in (CANARY, "canary%2Fof%20the%2Bkey", b64encode(f"u:{CANARY}".encode()).decode()):
        assert secret not in text


def test_short_values_are_not_masked() -> None:
    assert mask("a short-1 text", ["short-1", "a"]) == "a short-1 text"
    assert mask("a longer-1 text", ["longer-1"]) == "a *** text"


@each_row(
    ("secret", "sent"),
    [
        ('pass"word/1', '{"a":"pass\\"word/1"}'),
        ("base64+/key==", '{"a":"base64+\\/key=="}'),
        ("passwört-1", '{"a":"passw\\u00f6rt-1"}'),
        ("base64+/key==", r'{"a":"\u0062ase64\u002B\/key\u003d="}'),
        ("base64+/key==", r'{"a":"base64\\u002b\\\/key=="}'),
        ("base64+/key==", '{"a":"base64%2b/key%3D%3d"}'),
        ("back\\slash-🗼", r'{"a":"back\\slash-\ud83d\uddfc"}'),
    ],
)
def test_a_secret_is_masked_however_json_writes_it(secret: str, sent: str) -> None:
    assert mask(sent, [secret]) == '{"a":"***"}'


async def test_answer_that_contains_a_numeric_secret_is_still_a_result(api: ScriptedApi) -> None:
    api.answers = [http(200, b'{"id":12345678}', Content_Type="application/json")]
    async with Client.memory(server(api, "header", auth={"header": "12345678"})) as client:
        result = await client.call_tool("list")

    assert (result.text, result.is_error) == ('{"id":***}', False)


# Tokens


def tokens(api: ScriptedApi) -> Callable[[Received], bytes]:
    """Answer a token request with the next token, and any other with what it was sent."""

    def answer(request: Received) -> bytes:
        if request.target == "/token":
            number = sum(each.target == "/token" for each in api.received)
            body = {"access_token": f"token-{number}", "token_type": "Bearer", "expires_in": 3600}
            return http(200, json.dumps(body).encode(), Content_Type="application/json")
        return http(200, b"{}", Content_Type="application/json")

    return answer


CLIENT = {"clientId": "id", "clientSecret": "canary-secret", "scopes": ["a", "b"]}


async def test_one_token_of_a_client_serves_50_calls_at_once(api: ScriptedApi) -> None:
    api.answers = [tokens(api)]
    served = server(api, "client", auth={"client": CLIENT}, concurrency=50)
    async with Client.memory(served) as client:
        results = await asyncio.gather(*(client.call_tool("list") for _ in range(50)))

    requests = [each for each in api.received if each.target == "/token"]
    assert not any(result.is_error for result in results)
    assert len(requests) == 1
    assert b"grant_type=client_credentials" in requests[0].body
    assert b"scope=a+b" in requests[0].body
    assert b64encode(b"id:canary-secret").decode() in requests[0].headers["authorization"]


async def test_a_refused_token_is_renewed_once(api: ScriptedApi) -> None:
    issue = tokens(api)

    def answer(request: Received) -> bytes:
        if request.headers.get("authorization") == "Bearer token-1":
            return http(401)
        return issue(request)

    api.answers = [answer]
    served = server(api, "client", auth={"client": CLIENT})
    async with Client.memory(served) as client:
        result = await client.call_tool("list")

    assert not result.is_error
    assert [each.target for each in api.received] == ["/token", "/things", "/token", "/things"]


async def test_token_url_of_a_document_on_another_host_is_refused(api: ScriptedApi) -> None:
    served = OpenApiServer(
        document=document("https://elsewhere.example", [{"client": []}]),
        base_url=api.url,
        tools={"list": "list"},
        auth={"client": CLIENT},
    )

    with pytest.raises(ConfigError, match='add "tokenUrl": "https://elsewhere'):
        await served.load()


async def test_missing_login_names_the_command_and_each_owner_uses_their_own(
    api: ScriptedApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(
        "interlock.openapi.identity.UserTokenStore", lambda: UserTokenStore(keyring=False)
    )
    store = UserTokenStore(keyring=False).for_owner("/user:anna")
    await store.save_tokens(api.url, Tokens(access_token="token-of-anna"))
    served = server(api, "login", auth={"login": {"login": True}})
    async with Client.memory(served) as client:
        refused = await client.call_tool("list")
    async with Client(lambda: served.connect("/user:anna")) as client:
        await client.call_tool("list")

    assert refused.is_error
    assert "interlock servers login" in refused.text
    assert [each.headers["authorization"] for each in api.received] == ["Bearer token-of-anna"]


async def test_a_credential_of_each_user_is_not_sent_as_text(api: ScriptedApi) -> None:
    served = server(api, "header", auth={"header": "${user:shop}"})
    async with Client.memory(served) as client:
        result = await client.call_tool("list")

    assert result.is_error
    assert "needs shop from the calling user" in result.text
    assert not api.received
