"""Error answers as tool errors that a model can act on."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from interlock import Client
from interlock.openapi.server import OpenApiServer
from interlock.types import CallToolResult, JsonObject
from tests.openapi.scripted_api import ScriptedApi, http, scripted_api
from tests.support.rows import each_row

DOCUMENT: JsonObject = {
    "openapi": "3.1.0",
    "info": {"title": "T", "version": "1"},
    "security": [{"Key": []}],
    "components": {"securitySchemes": {"Key": {"type": "http", "scheme": "bearer"}}},
    "paths": {
        "/orders/{id}": {
            "put": {
                "operationId": "put",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "page[size]", "in": "query", "schema": {"type": "integer"}},
                    {"name": "If-Match", "in": "header", "schema": {"type": "string"}},
                ],
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "properties": {"zip code": {"type": "string"}},
                            }
                        }
                    }
                },
                "responses": {"409": {"description": "The order has been sent already"}},
            }
        }
    },
}


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as api:
        yield api


async def put(
    api: ScriptedApi, status: int, body: object = b"", auth: Any = None, **headers: str
) -> CallToolResult:
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("Content_Type", "application/json")
    api.answers = [http(status, body, **headers)]
    server = OpenApiServer(
        document=DOCUMENT,
        base_url=api.url,
        tools={"put": "put"},
        auth={"Key": "canary-token"} if auth is None else auth,
    )
    async with Client.memory(server) as client:
        result = await client.call_tool("put", {"id": "a"})
    assert result.is_error
    return result


async def test_an_error_names_status_operation_description_and_request_id(
    api: ScriptedApi,
) -> None:
    result = await put(api, 409, {"message": "already sent"}, X_Request_Id="r-1")

    assert result.text.splitlines() == [
        "409 Conflict: PUT /orders/{id}",
        "The order has been sent already",
        "already sent",
        "request id: r-1",
    ]
    assert result.meta is not None
    assert result.meta["interlock/http"]["status"] == 409


@each_row(
    ("body", "line"),
    [
        ({"type": "about:blank", "title": "Bad", "detail": "too big"}, "too big"),
        ({"detail": [{"loc": ["query", "page[size]"], "msg": "too big"}]}, "page_size: too big"),
        ({"detail": [{"loc": ["body", "zip code", 0], "msg": "bad"}]}, "zip_code.0: bad"),
        ({"error": {"message": "bad zip", "param": "zip code"}}, "zip_code: bad zip"),
        ({"error": "invalid_request", "error_description": "no zip"}, "no zip"),
        ({"errors": [{"field": "zip code", "message": "bad"}]}, "zip_code: bad"),
        ({"errors": {"zip code": ["bad", "short"]}}, "zip_code: bad; short"),
        ({"errors": [{"source": {"pointer": "/zip code"}, "detail": "bad"}]}, "zip_code: bad"),
        ({"errors": ["bad"]}, "bad"),
        ({"code": 17}, '{"code":17}'),
    ],
)
async def test_common_error_formats_name_the_invalid_argument(
    api: ScriptedApi, body: JsonObject, line: str
) -> None:
    assert (await put(api, 422, body)).text.splitlines()[1:] == [line]


async def test_a_web_page_is_reduced_to_its_title(api: ScriptedApi) -> None:
    page = b"<!doctype html><html><head><title>Bad\n gateway</title></head><body>x</body></html>"

    result = await put(api, 400, page, Content_Type="text/html")

    assert result.text.splitlines()[1:] == ["Bad gateway"]


async def test_a_long_error_is_cut_to_2_kib(api: ScriptedApi) -> None:
    result = await put(api, 400, "é" * 5_000)

    assert len(result.text.encode()) <= 2_048
    assert result.text.endswith("[cut]")


async def test_control_and_invisible_characters_are_removed(api: ScriptedApi) -> None:
    result = await put(api, 400, {"message": "a\x1b[2J\u202eb\u200b"})

    assert result.text.splitlines()[1] == "a[2Jb"


@pytest.mark.parametrize(
    ("auth", "words"),
    [
        ({}, "no credential for 'Key' in openapi.auth"),
        (None, "refuses the credential for 'Key' in openapi.auth"),
    ],
)
async def test_a_401_names_the_security_scheme(
    api: ScriptedApi, auth: dict[str, str] | None, words: str
) -> None:
    assert words in (await put(api, 401, auth=auth)).text


async def test_a_403_names_the_scopes_of_the_challenge(api: ScriptedApi) -> None:
    challenge = 'Bearer error="insufficient_scope", scope="orders:write"'

    assert "scopes: orders:write" in (await put(api, 403, WWW_Authenticate=challenge)).text


async def test_a_412_names_the_argument_for_the_etag(api: ScriptedApi) -> None:
    assert "as If-Match" in (await put(api, 412)).text


async def test_a_secret_that_the_api_repeats_is_masked(api: ScriptedApi) -> None:
    result = await put(
        api, 400, {"message": "token canary-token is old"}, X_Request_Id="canary-token"
    )

    assert "canary" not in str(result)
    assert "token *** is old" in result.text


@each_row("page", ["<h1>" * 200_000, "<title>" + "<" * 50_000 + "</title>", "<h1>a</title><h1"])
async def test_hostile_web_page_is_parsed_in_linear_time(api: ScriptedApi, page: str) -> None:
    start = time.process_time()
    result = await put(api, 500, page.encode(), Content_Type="text/html")

    assert result.text.startswith("500 Internal Server Error")
    assert time.process_time() - start < 1  # it would take minutes


async def test_secret_at_the_end_of_truncated_text_is_masked_completely(api: ScriptedApi) -> None:
    for length in range(1_990, 2_020, 6):
        body = b"x" * length + b"canary-token"
        result = await put(api, 400, body, Content_Type="text/plain")

        assert "canary" not in result.text
