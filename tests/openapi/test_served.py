"""An API behind a toolbox and a gateway: every revision, credentials by user, risk by method."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from msgspec.structs import replace

from interlock import Client, Toolbox
from interlock.auth import Principal
from interlock.calls import Caller
from interlock.config import Config, OpenApiConfig
from interlock.config.gateway import PolicyRules, Rule
from interlock.config.openapi import ApiDocument, ApiLogin, ApiSecret
from interlock.config.servers import ToolFilter, ToolRisk
from interlock.errors import InterlockError
from interlock.gateway import ForwardingServer
from interlock.oauth.storage import Tokens, UserTokenStore
from interlock.openapi.server import OpenApiServer
from interlock.policy import Policy
from interlock.revisions import ALL
from tests.gateway.support import OWN_TOOLS
from tests.openapi.scripted_api import Received, ScriptedApi, http, scripted_api

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "T", "version": "1"},
    "components": {
        "securitySchemes": {
            "Key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "Login": {
                "type": "oauth2",
                "flows": {
                    "authorizationCode": {
                        "authorizationUrl": "https://as.example/authorize",
                        "tokenUrl": "https://as.example/token",
                    }
                },
            },
        }
    },
    "security": [{"Key": []}],
    "paths": {
        "/things": {
            "get": {"operationId": "list"},
            "post": {"operationId": "search"},
            "delete": {"operationId": "clear"},
            "put": {"operationId": "own", "security": [{"Login": []}]},
        }
    },
}
EVERYBODY = Rule(id="all", effect="allow", who=("*",), kind="tools", patterns=("*:*",))
TOOLS: dict[str, Any] = {
    "list": {"operation": "list"},
    "search": {"operation": "search", "risk": "read"},
    "clear": {"operation": "clear"},
    "own": {"operation": "own"},
}


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as api:
        api.answers = [http(200, b'{"a":1}', Content_Type="application/json")]
        yield api


@pytest.fixture
def config(api: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenApiConfig:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(
        "interlock.openapi.identity.UserTokenStore", lambda: UserTokenStore(keyring=False)
    )
    path = tmp_path / "api.json"
    path.write_text(json.dumps(DOCUMENT))
    risk = ToolRisk(by_tool={"search": "read"}, trusts_annotations=True)
    return OpenApiConfig(
        openapi=ApiDocument(
            document=str(path),
            base_url=api.url,
            auth={"Key": ApiSecret("${KEY}"), "Login": ApiLogin()},
            tools=TOOLS,
        ),
        tools=ToolFilter(risk=risk),
        sharing="per_user",
    )


async def test_null_is_left_out_of_parameters_and_is_kept_where_it_removes_a_value(
    api: ScriptedApi,
) -> None:
    text = {"type": "string"}
    body = {"type": "object", "properties": {"nick": text, "kept": {"type": ["string", "null"]}}}
    operation = {
        "parameters": [{"name": "q", "in": "query", "schema": text}],
        "requestBody": {"content": {"application/json": {"schema": body}}},
    }
    both = {name: {"operationId": name, **operation} for name in ("post", "patch")}
    document = {"openapi": "3.1.0", "info": {"title": "T", "version": "1"}, "paths": {"/x": both}}
    server = OpenApiServer(document=document, base_url=api.url, tools={name: name for name in both})
    async with Toolbox({"t": server}, environ={}) as toolbox:
        await toolbox.call("t:post", {"q": None, "nick": None, "kept": None})
        await toolbox.call("t:patch", {"q": None, "kept": None})
        with pytest.raises(InterlockError, match="nick: null is not a string"):
            await toolbox.call("t:patch", {"nick": None})

    assert [each.target for each in api.received] == ["/x", "/x"]
    assert [each.body for each in api.received] == [b'{"kept":null}'] * 2


@pytest.mark.parametrize("revision", ALL)
async def test_a_call_works_in_every_revision(
    api: ScriptedApi, config: OpenApiConfig, revision: str
) -> None:
    served = OpenApiServer.from_config(config, {"KEY": "k"})
    async with Client.memory(served, revision=revision) as client:
        listed = [tool.name for tool in await client.list_tools()]
        result = await client.call_tool("list")

    assert listed == list(TOOLS)
    assert result.text == '{"a":1}'
    assert api.received[0].headers["x-key"] == "k"


async def test_read_only_gateway_offers_only_reading_tools(
    api: ScriptedApi, config: OpenApiConfig
) -> None:
    risks = {"t": config.tools.risk}
    gateway = ForwardingServer(
        {"t": config},
        Policy.compile(PolicyRules(read_only=True, rules=(EVERYBODY,)), risks=risks),
        environ={"KEY": "k"},
    )
    async with gateway.running():
        before = asyncio.all_tasks()
        async with Client.memory(gateway) as client:
            connection = asyncio.all_tasks() - before
            names = [tool.name for tool in await client.list_tools()]
            listed = [name for name in names if name not in OWN_TOOLS]
            result = await client.call_tool("t__search")
            with pytest.raises(InterlockError, match="unknown tool"):
                await client.call_tool("t__clear")
        await asyncio.wait(connection)

    assert listed == ["t__list", "t__search"]
    assert result.text == '{"a":1}'
    assert [each.method for each in api.received] == ["POST"]


async def test_risk_follows_the_method_unless_configured(
    config: OpenApiConfig,
) -> None:
    policy = Policy.from_config(Config(servers={"t": config}))
    async with Toolbox({"t": config}, environ={"KEY": "k"}) as toolbox:
        risks = {entry.tool.name: policy.risk(entry) for entry in toolbox.tools}

    assert risks == {"list": "read", "search": "read", "clear": "write", "own": "write"}


async def test_each_user_calls_with_their_own_login(
    api: ScriptedApi, config: OpenApiConfig
) -> None:
    users = [Principal(f"user:{name}") for name in ("anna", "ben", "eve")]
    for user in users[:2]:
        store = UserTokenStore(keyring=False).for_owner(user.owner)
        await store.save_tokens(api.url, Tokens(access_token=f"token-of-{user.id}"))
    async with Toolbox({"t": config}, environ={"KEY": "k"}) as toolbox:
        results = [await toolbox.call("t:own", caller=Caller(user)) for user in users]

    assert [result.is_error for result in results] == [False, False, True]
    assert [each.headers["authorization"] for each in api.received] == [
        "Bearer token-of-user:anna",
        "Bearer token-of-user:ben",
    ]
    assert "interlock servers login t" in results[2].text


async def test_headers_and_tokens_of_a_caller_are_never_sent_to_the_api(api: ScriptedApi) -> None:
    served = OpenApiServer(
        document=DOCUMENT, base_url=api.url, tools={"list": "list"}, auth={"Key": "k"}
    )
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(served.asgi(), log_level="warning", lifespan="on"))
    running = asyncio.create_task(server.serve([listening]))
    headers = {"X-Api-Key": "canary", "X-Key": "canary", "Cookie": "a=canary", "X-Any": "canary"}
    client = Client.http(f"http://127.0.0.1:{port}/mcp", headers=headers)
    async with client:
        result = await client.call_tool("list")
    server.should_exit = True
    await running

    assert result.text == '{"a":1}'
    assert "canary" not in str(api.received)


async def test_a_document_that_cannot_be_read_costs_its_own_server_only(
    config: OpenApiConfig, tmp_path: Path
) -> None:
    good = config.openapi
    broken = tmp_path / "broken.json"
    broken.write_text("[" * 100_000)
    other = replace(config, openapi=replace(good, document=str(broken)))
    async with Toolbox({"t": config, "broken": other}, environ={"KEY": "k"}) as toolbox:
        states = {name: status.state for name, status in toolbox.status.items()}
        reason = toolbox.status["broken"].reason

    assert states == {"t": "ok", "broken": "failed"}
    assert "nested too deep" in reason


async def test_an_answer_that_comes_while_50_calls_wait_belongs_to_its_call(
    api: ScriptedApi, config: OpenApiConfig
) -> None:
    def echo(request: Received) -> bytes:
        return http(200, request.headers["x-key"].encode(), Content_Type="text/plain")

    api.answers = [echo]
    async with Toolbox({"t": config}, environ={"KEY": "k"}) as toolbox:
        results = await asyncio.gather(*(toolbox.call("t:list") for _ in range(50)))

    assert {result.text for result in results} == {"k"}
