"""An OpenAPI document as a server: by itself, in a toolbox and over HTTP."""

from __future__ import annotations

import gc
import json
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from interlock import Client, Toolbox
from interlock.errors import ConfigError, InterlockError
from interlock.openapi.server import OpenApiServer
from tests.openapi.shop import KEY, app
from tests.support.rows import each_row

TOOLS: dict[str, Any] = {
    "get_order": "getOrder",
    "list_orders": {
        "operation": "GET /orders",
        "arguments": {"page[size]": {"name": "limit", "default": 20, "maximum": 50}},
    },
    "add_order": "addOrder",
    "delete_order": "deleteOrder",
}


def shop(tools: dict[str, Any] = TOOLS, **options: Any) -> OpenApiServer:
    options = {"auth": {"ApiKey": KEY}, "app": app} | options
    return OpenApiServer(document=app.openapi(), tools=tools, **options)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client.memory(shop()) as client:
        yield client


async def test_listed_operations_are_tools_with_the_hints_of_their_methods(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}

    assert list(tools) == list(TOOLS)
    assert tools["get_order"].annotations is not None
    assert tools["get_order"].annotations.read_only_hint
    assert tools["add_order"].annotations is not None
    assert not tools["add_order"].annotations.read_only_hint


async def test_a_call_reaches_the_api_and_returns_its_answer(client: Client) -> None:
    result = await client.call_tool("get_order", {"id": 1})

    assert result.structured == {"item": "tea", "count": 2, "note": "hot"}
    assert json.loads(result.text) == result.structured
    assert result.meta is not None
    assert result.meta["interlock/http"]["status"] == 200


async def test_a_created_resource_is_named_and_a_deletion_is_done(client: Client) -> None:
    created = await client.call_tool("add_order", {"item": "cake", "note": None})
    deleted = await client.call_tool("delete_order", {"id": 2})

    assert created.text.endswith("Created: /orders/2")
    assert (deleted.text, deleted.is_error) == ("Done (204).", False)


async def test_page_of_results_names_the_arguments_of_the_next_page(client: Client) -> None:
    result = await client.call_tool("list_orders", {"page": 3})

    assert result.structured == {"page": 3, "limit": 20, "tags": None}
    assert result.text.endswith("More: call again with page=4")


async def test_empty_list_as_arguments_counts_as_an_empty_object(client: Client) -> None:
    result = await client.call_tool("list_orders", Raw(b"[]"))
    refused = await client.call_tool("list_orders", Raw(b"[1]"))

    assert result.structured == {"page": 1, "limit": 20, "tags": None}
    assert (refused.is_error, "object" in refused.text) == (True, True)


async def test_invalid_arguments_are_refused_without_their_value(client: Client) -> None:
    result = await client.call_tool("get_order", {"id": "canary"})

    assert result.is_error
    assert "id" in result.text
    assert "canary" not in result.text


@each_row("name", ["listUsers", "GET /admin/users", "/admin/users", "GET_ORDER", "getOrder", ""])
async def test_an_operation_that_is_not_listed_cannot_be_called(client: Client, name: str) -> None:
    with pytest.raises(InterlockError, match="unknown tool"):
        await client.call_tool(name, {"id": 1})


async def test_unknown_operation_is_missing_in_the_status_with_a_close_name() -> None:
    async with Toolbox({"shop": shop({"get_order": "getOrder", "other": "getOrdr"})}) as toolbox:
        status = toolbox.status["shop"]

    assert status.tools == 1
    (line,) = status.missing
    assert line.startswith("tool 'other': the document has no operation 'getOrdr'")
    assert "getOrder" in line


async def test_without_base_url_the_server_is_refused() -> None:
    with pytest.raises(ConfigError, match="base_url is missing"):
        OpenApiServer(document=app.openapi(), tools={})


async def test_a_key_without_scheme_in_the_document_is_refused_with_the_nearest_name() -> None:
    server = shop(auth={"ApiKy": KEY})

    with pytest.raises(ConfigError, match="did you mean 'ApiKey'"):
        await server.load()


async def answer_order(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"item":"tea","count":2}'})


def resident() -> float:
    """Return the memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.product
@pytest.mark.timeout(600)
async def test_memory_stays_flat_over_a_hundred_thousand_calls() -> None:
    api = shop(app=answer_order)
    used: list[float] = []
    async with Client.memory(api) as client:
        for count in range(100_001):
            await client.call_tool("get_order", {"id": count})
            if count in (10_000, 100_000):
                gc.collect()
                used.append(resident())

    assert used[1] - used[0] < 1
