"""The member `openapi` of a server: what is accepted, and what is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from interlock.config import OpenApiConfig, loads, resolve
from interlock.config.openapi import ApiClient, ApiLogin, ApiPassword, ApiSecret
from tests.support.rows import each_row

SHOP: dict[str, Any] = {
    "document": "shop.yaml",
    "baseUrl": "https://shop.example/v1",
    "tools": {"get_order": "getOrder"},
}


def read(openapi: dict[str, Any], **entry: Any) -> OpenApiConfig:
    text = json.dumps({"mcpServers": {"shop": {"openapi": openapi, **entry}}}, indent=1)
    config = loads(text.encode(), Path("/etc/interlock/mcp.json"))
    assert not config.warnings, config.warnings
    server = config.servers["shop"]
    assert isinstance(server, OpenApiConfig)
    return server


def refused(openapi: dict[str, Any]) -> str:
    """Return why a server is ignored."""
    text = json.dumps({"mcpServers": {"shop": {"openapi": openapi}}}, indent=1).encode()
    return loads(text, Path("/etc/interlock/mcp.json")).ignored["shop"]


def test_a_document_is_relative_to_the_folder_of_the_file() -> None:
    server = read(SHOP)

    assert server.openapi.document == "/etc/interlock/shop.yaml"
    assert server.openapi.tools == {"get_order": {"operation": "getOrder"}}
    assert (server.timeout, server.concurrency) == (30.0, 8)


def test_tools_may_be_a_list_with_names() -> None:
    listed = [{"operation": "getOrder", "name": "get_order", "description": "One"}]

    assert read({**SHOP, "tools": listed}).openapi.tools == {
        "get_order": {"operation": "getOrder", "description": "One"}
    }


def test_credentials_are_read_by_their_form_and_hidden_from_a_repr() -> None:
    auth = {
        "a": "canary-1",
        "b": {"username": "u", "password": "canary-2"},
        "c": {"clientId": "i", "clientSecret": "canary-3", "scopes": ["s"]},
        "d": {"login": True},
    }
    server = read({**SHOP, "auth": auth}, headers={"X-Key": "canary-4"})

    assert server.openapi.auth == {
        "a": ApiSecret("canary-1"),
        "b": ApiPassword("u", "canary-2"),
        "c": ApiClient(client_id="i", client_secret="canary-3", scopes=("s",)),
        "d": ApiLogin(),
    }
    assert "canary" not in repr(server)


def test_variables_are_replaced_except_those_of_each_user() -> None:
    auth = {"a": "${KEY}", "b": "${user:shop}"}
    server = read({**SHOP, "baseUrl": "${URL}", "auth": auth}, sharing="per_user")
    resolved = resolve(server, {"KEY": "k", "URL": "https://a.example"})

    assert resolved.openapi.base_url == "https://a.example"
    assert resolved.openapi.auth == {"a": ApiSecret("k"), "b": ApiSecret("${user:shop}")}


def test_risk_set_for_a_tool_overrides_the_patterns() -> None:
    tools = {"search": {"operation": "POST /search", "risk": "read"}, "other": "other"}
    server = read({**SHOP, "tools": tools}, tools={"risk": {"write": ["*"]}})

    assert server.tools.risk.of("search") == "read"
    assert server.tools.risk.of("other") == "write"


@each_row(
    ("change", "problem"),
    [
        ({"document": None}, "openapi.document must be a string"),
        ({"document": "http://a.example/x"}, "openapi.document must be a path, a URL with https"),
        ({"document": "file:///etc/passwd"}, "openapi.document must be a path, a URL with https"),
        ({"baseUrl": "shop.example"}, "openapi.baseUrl must start with https:// or http://"),
        ({"baseUrl": "https://u:p@a.example"}, "openapi.baseUrl must not contain a user"),
        ({"baseUrl": "https://a.example?a=1"}, "openapi.baseUrl must not contain a query"),
        ({"baseUrl": "https://a.example:x"}, "openapi.baseUrl has an invalid host or port"),
        ({"allowHttp": 1}, "openapi.allowHttp must be true or false"),
        ({"auth": {"a": 5}}, "openapi.auth.a must be an object"),
        ({"auth": {"a": {}}}, "openapi.auth.a must be a text"),
        ({"auth": {"a": {"login": False}}}, "openapi.auth.a.login must be true"),
        ({"auth": {"a": {"username": "u"}}}, 'openapi.auth.a needs "password"'),
        ({"auth": {"a": {"clientId": "u"}}}, 'openapi.auth.a needs "clientSecret"'),
        ({"auth": {"a": {"login": True, "scope": "s"}}}, "openapi.auth.a.scope is unknown"),
        ({"tools": {"a b": "x"}}, "openapi.tools['a b'] must be a name of 1 to 64 letters"),
        ({"tools": {"a": {}}}, 'openapi.tools.a needs "operation"'),
        ({"tools": {"a": {"operation": "x", "risc": "read"}}}, "(did you mean 'risk'?)"),
        ({"tools": {"a": {"operation": "x", "risk": "none"}}}, "a.risk must be one of read, write"),
        ({"tools": {"a": {"operation": "x", "body": "x"}}}, "a.body must be one of flat, nested"),
        ({"tools": {"a": {"operation": "x", "maxAnswerBytes": 0}}}, "must be between 1 and"),
        ({"tools": {"a": {"operation": "x", "annotations": {"x": 1}}}}, "annotations.x is unknown"),
        ({"tools": [{"operation": "x"}]}, 'openapi.tools[0] needs "name"'),
        ({"tools": [{"operation": "x", "name": "a"}] * 2}, "tools[1].name is the name of another"),
    ],
)
def test_a_wrong_member_is_refused_with_its_place(change: dict[str, Any], problem: str) -> None:
    reason = refused({**SHOP, **change})

    assert problem in reason
    assert reason.startswith("line ")


@each_row(
    ("argument", "problem"),
    [
        ({"vaule": 1}, "(did you mean 'value'?)"),
        ({"name": "a b"}, "must be 1 to 64 letters"),
        ({"value": 1, "default": 2}, 'cannot be combined with "value"'),
        ({"hide": True, "default": 2}, 'cannot be combined with "hide"'),
        ({"maximum": "5"}, "must be a number"),
        ({"enum": []}, "must be a list of values"),
    ],
)
def test_a_wrong_rule_for_an_argument_is_refused(argument: dict[str, Any], problem: str) -> None:
    tools = {"a": {"operation": "x", "arguments": {"page": argument}}}

    reason = refused({**SHOP, "tools": tools})

    assert problem in reason
    assert "openapi.tools.a.arguments.page." in reason


@each_row("missing", ["document", "baseUrl"])
def test_a_missing_document_or_base_url_is_refused(missing: str) -> None:
    rest = {key: value for key, value in SHOP.items() if key != missing}

    assert f'needs "{missing}"' in refused(rest)


def test_a_credential_of_each_user_needs_sharing_per_user() -> None:
    reason = refused({**SHOP, "auth": {"a": "${user:shop}"}})

    assert "all users share this server" in reason
