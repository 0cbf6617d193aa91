"""Requests to an API: where they may go, and when they are repeated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Client
from interlock.openapi.sending import Sender
from interlock.openapi.server import OpenApiServer
from interlock.types import CallToolResult, ResourceLink
from tests.openapi.scripted_api import ScriptedApi, http, scripted_api
from tests.support.rows import each_row

CANARY = "canary-of-the-key"
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "T", "version": "1"},
    "security": [{"Key": []}],
    "components": {"securitySchemes": {"Key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
    "paths": {
        "/things": {"get": {"operationId": "list"}, "post": {"operationId": "add"}},
        "/things/{id}": {
            "put": {
                "operationId": "put",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
            }
        },
    },
}


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as api:
        yield api


async def call(
    api: ScriptedApi, tool: str, arguments: dict[str, Any] | None = None, **options: Any
) -> CallToolResult:
    server = OpenApiServer(
        document=DOCUMENT,
        base_url=f"{api.url}/v1",
        tools={"list": "list", "add": "add", "put": "put"},
        auth={"Key": CANARY},
        **options,
    )
    async with Client.memory(server) as client:
        return await client.call_tool(tool, arguments or {})


async def test_a_request_has_the_path_below_the_base_url_and_the_key(api: ScriptedApi) -> None:
    await call(api, "list", headers={"X-App": "tests"})

    (received,) = api.received
    assert (received.method, received.target) == ("GET", "/v1/things")
    assert received.headers["x-key"] == CANARY
    assert received.headers["x-app"] == "tests"
    assert "cookie" not in received.headers


# Redirects


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_get_follows_a_redirect_below_the_base_url(api: ScriptedApi, status: int) -> None:
    api.answers = [http(status, Location="/v1/other"), http(200, b'{"a":1}')]

    result = await call(api, "list")

    assert result.text == '{"a":1}'
    assert [each.target for each in api.received] == ["/v1/things", "/v1/other"]


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:1/v1/things",
        "//evil.example/x",
        "/v2/things",
        "/v1/../admin",
        "/v1/%2e%2e/x",
    ],
)
async def test_a_get_elsewhere_is_answered_with_a_link_and_not_requested(
    api: ScriptedApi, location: str
) -> None:
    api.answers = [http(302, Location=location)]

    result = await call(api, "list")

    assert not result.is_error
    assert any(isinstance(each, ResourceLink) for each in result.content)
    assert len(api.received) == 1


async def test_a_get_follows_three_redirects_at_most(api: ScriptedApi) -> None:
    api.answers = [http(302, Location="/v1/again")]

    await call(api, "list")

    assert len(api.received) == 4


async def test_a_redirected_post_is_an_error_that_names_base_url(api: ScriptedApi) -> None:
    api.answers = [http(307, Location="/v1/other")]

    result = await call(api, "add")

    assert result.is_error
    assert "baseUrl" in result.text
    assert len(api.received) == 1


# Repeating


@pytest.mark.parametrize(("tool", "requests"), [("list", 2), ("put", 2), ("add", 1)])
@pytest.mark.parametrize("answer", [http(500), None], ids=["error", "no answer"])
async def test_a_lost_request_is_repeated_once_if_that_has_no_further_effect(
    api: ScriptedApi, tool: str, requests: int, answer: bytes | None
) -> None:
    api.answers = [answer]

    result = await call(api, tool, {"id": "a"} if tool == "put" else {})

    assert result.is_error
    assert len(api.received) == requests
    assert ("may have been carried out" in result.text) == (tool != "list")


@pytest.mark.parametrize("status", [429, 503])
async def test_a_short_retry_after_is_waited_for_once_also_by_a_post(
    api: ScriptedApi, status: int
) -> None:
    api.answers = [http(status, Retry_After="0"), http(200, b"[]")]

    result = await call(api, "add")

    assert result.text == "[]"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("60", "60"), ("7200", "3600"), ("Fri, 31 Dec 2100 23:59:59 GMT", "3600")],
)
async def test_a_long_retry_after_is_reported(api: ScriptedApi, value: str, seconds: str) -> None:
    api.answers = [http(429, Retry_After=value)]

    result = await call(api, "list")

    assert f"retry after {seconds} s" in result.text
    assert result.meta is not None
    assert result.meta["interlock/http"]["headers"]["retry-after"] == value
    assert len(api.received) == 1


async def test_an_answer_that_stalls_is_an_error_after_the_timeout(api: ScriptedApi) -> None:
    api.answers = [b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{"]

    result = await call(api, "add", timeout=0.2)

    assert "did not answer within 0.2 s; it may have been carried out" in result.text
    assert len(api.received) == 1


async def test_error_of_an_unreachable_api_states_that_nothing_was_sent(api: ScriptedApi) -> None:
    api.url = "http://127.0.0.1:1"

    result = await call(api, "add")

    assert result.is_error
    assert "the request was not sent" in result.text


# The URL


@given(st.text())
def test_request_url_never_leaves_the_origin_and_prefix(target: str) -> None:
    sender = Sender(None, "https://api.example/v1", {}, 1.0, 1)  # type: ignore[arg-type]  # unused
    url = f"https://api.example/v1{target}"
    if sender.is_below_base(url):
        assert url.startswith("https://api.example/v1/")
        assert "/../" not in f"{url.split('?')[0].split('#')[0]}/"


@each_row(
    "url",
    [
        "https://api.example/v1",
        "https://api.example/v11/a",
        "https://api.example:444/v1/a",
        "http://api.example/v1/a",
        "https://user@api.example/v1/a",
        "https://api.example/v1/%252e%252e/a",
        "https://api.example/v1/a\\..\\b",
    ],
)
def test_a_url_outside_of_the_base_url_is_recognised(url: str) -> None:
    sender = Sender(None, "https://api.example/v1", {}, 1.0, 1)  # type: ignore[arg-type]  # unused

    assert not sender.is_below_base(url)
