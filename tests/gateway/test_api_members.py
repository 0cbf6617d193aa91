"""Operations of an HTTP API behind a gateway: who sees them, and what is recorded of them."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from interlock import Client
from interlock.revisions import ALL
from interlock.store.audit.reading import AuditReader, CallFilter
from tests.gateway.conftest import bearer
from tests.openapi.scripted_api import ScriptedApi, http, scripted_api

PATHS = {
    "/orders/{id}": {
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": {}}],
        "get": {"operationId": "getOrder"},
        "delete": {"operationId": "deleteOrder"},
    }
}
CANARY = "canary-81f3"
OLDEST, LAST_LEGACY, MODERN = ALL[0], ALL[-2], ALL[-1]


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as api:
        api.answers = [http(200, b'{"a":1}', Content_Type="application/json")]
        yield api


def member(api: ScriptedApi, folder: Path, tools: Any) -> dict[str, Any]:
    """Return an entry of the configuration for a document in a folder."""
    info = {"title": "Shop", "version": "1"}
    path = folder / "shop.json"
    path.write_text(json.dumps({"openapi": "3.1.0", "info": info, "paths": PATHS}))
    return {"openapi": {"document": str(path), "baseUrl": api.url, "tools": tools}}


TOOLS = {"get_order": "getOrder", "delete_order": "deleteOrder"}


@pytest.mark.slow("fills a database")
async def test_a_key_that_may_read_sees_and_calls_only_operations_that_read(
    running: Any, api: ScriptedApi, tmp_path: Path
):
    async with running(None, shop=member(api, tmp_path, TOOLS)) as gateway:
        reader = await gateway.key("anna", "mcp:read")
        writer = await gateway.key("berta", "mcp:*")
        seen = await gateway.names(reader), await gateway.names(writer)
        read = await gateway.call("shop__get_order", reader, id="7")
        refused = await gateway.call("shop__delete_order", reader, id="7")

    assert seen == (["shop__get_order"], ["shop__get_order", "shop__delete_order"])
    assert read.text == '{"a":1}'
    assert refused.json["error"]["message"] == "unknown tool 'shop__delete_order'"
    assert [each.method for each in api.received] == ["GET"]


@pytest.mark.slow("fills a database")
async def test_a_call_of_an_operation_is_recorded_without_its_arguments(
    running: Any, api: ScriptedApi, tmp_path: Path
):
    async with running(None, shop=member(api, tmp_path, TOOLS)) as gateway:
        key = await gateway.key()
        await gateway.call("shop__delete_order", key, id=CANARY)
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        (call,) = await reader.calls(CallFilter(tool="shop:delete_order"))
        records = await reader.records(call["call"])

    assert (call["user"], call["status"], call["risk"]) == ("user:anna", "ok", "write")
    assert [each["kind"] for each in records] == ["intent", "outcome"]
    assert records[0]["operation"] == "DELETE /orders/{id}"
    assert records[0]["argumentsHash"]
    assert records[1]["ms"] > 0
    assert CANARY not in json.dumps(records)


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("tools", [{}, []], ids=["an empty object", "an empty list"])
async def test_api_entry_without_tools_offers_no_operation(
    running: Any, api: ScriptedApi, tmp_path: Path, tools: Any
):
    async with running(None, shop=member(api, tmp_path, tools)) as gateway:
        key = await gateway.key()
        listed = await gateway.names(key)
        answers = [
            await gateway.http.call(f"shop__{name}", {"id": "7"}, headers=bearer(key))
            for name in ("getOrder", "get_order", "GET /orders/{id}")
        ]

    assert listed == []
    assert all("unknown tool" in each.json["error"]["message"] for each in answers)
    assert api.received == []


@pytest.mark.slow("starts a gateway on stdio")
@pytest.mark.parametrize("revision", [LAST_LEGACY, MODERN])
async def test_an_api_is_served_on_stdio(revision: str, api: ScriptedApi, tmp_path: Path):
    config = tmp_path / "gateway.json"
    entry = member(api, tmp_path, {"get_order": "getOrder"})
    config.write_text(json.dumps({"mcpServers": {"shop": entry}, "gateway": {}}))
    program = str(Path(sys.executable).with_name("interlock"))
    folders = {"XDG_DATA_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)}
    arguments = ("serve", "--stdio", "--config", str(config))
    async with Client.stdio(program, *arguments, revision=revision, env=folders) as client:
        listed = [each.name for each in await client.list_tools()]
        result = await client.call_tool("shop__get_order", {"id": "7"})

    assert "shop__get_order" in listed
    assert json.loads(result.content[0].text) == {"a": 1}
    assert [each.target for each in api.received] == ["/orders/7"]
