"""Plugins over the API: given to a user and taken from them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.gateway.admin.support import Operator
from tests.support.scripted_server import Json

OPERATION = {"responses": {"200": {"description": "ok"}}}
DOCUMENT: Json = {
    "openapi": "3.1.0",
    "info": {"title": "CRM", "version": "1"},
    "paths": {
        "/orders": {"get": OPERATION | {"operationId": "listOrders"}},
        "/refunds": {"get": OPERATION | {"operationId": "listRefunds"}},
    },
}
REFUNDS: Json = {
    "name": "refunds",
    "version": "1",
    "mcp_tools": [{"name": "list_refunds", "operation_id": "listRefunds"}],
}


@pytest.mark.slow("fills a database")
async def test_operator_installs_and_removes_a_plugin_of_a_user(running, tmp_path: Path):
    folder = tmp_path / "plugins" / "refunds"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(REFUNDS))
    (tmp_path / "crm.json").write_text(json.dumps(DOCUMENT))
    crm: Json = {
        "openapi": {
            "document": str(tmp_path / "crm.json"),
            "baseUrl": "http://127.0.0.1:9",
            "tools": {"orders": {"operation": "listOrders"}},
        }
    }
    settings = {"plugins": {"folder": str(tmp_path / "plugins"), "server": "crm"}}
    async with running(settings, crm=crm) as gateway:
        operator, anna = await Operator.of(gateway), await gateway.key("anna")
        (listed,) = await operator.get("/plugins")
        assert (listed["name"], listed["tools"], listed["users"]) == (
            "refunds",
            ["list_refunds"],
            [],
        )
        place = "/plugins/refunds/users/anna"
        installed = await operator.change("POST", place, {})
        assert (installed["user"], installed["by"]) == ("user:anna", "user:op")
        assert await operator.change("POST", place, {}) == installed
        assert await operator.get("/plugins/refunds/users/user:anna") == installed
        while "crm__list_refunds" not in await gateway.names(anna):  # noqa: ASYNC110 - it polls
            await asyncio.sleep(0.02)

        await operator.change("DELETE", place)
        gone = (404, "not_found")
        assert await operator.refused("GET", place) == gone
        assert await operator.refused("DELETE", place) == gone
        assert await operator.refused("POST", "/plugins/absent/users/anna", {}) == gone
        subject = "/plugins/refunds/users/https:%2F%2Fid.example%234711"
        token = await operator.change("POST", subject, {})
        assert token["user"] == "https://id.example#4711"
        did = [(each["action"], each["id"]) for each in await operator.recorded()]
        assert did == [
            ("plugin_installed", "refunds"),
            ("plugin_removed", "refunds"),
            ("plugin_installed", "refunds"),
        ]
