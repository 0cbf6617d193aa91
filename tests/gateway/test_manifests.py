"""Plugins add operations of an API as tools, for users who have installed them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from interlock import config
from interlock.calls import Caller
from interlock.config.gateway import Address
from interlock.errors import StoreError
from interlock.gateway import manifests as plugins
from interlock.gateway.admin.operations import Operations
from interlock.gateway.assembly import Assembly
from interlock.gateway.explain.explainer import Explainer
from interlock.gateway.forwarding import changes
from interlock.gateway.manifests import read_plugins
from interlock.gateway.planning import plan_of
from interlock.gateway.serving.endpoint import Endpoint
from interlock.store.database import changes as store_changes
from interlock.store.database.changes import ChangeFeed
from interlock.store.database.database import Database
from interlock.store.keys import KeyStore
from interlock.store.plugins import Installation, PluginStore
from tests.gateway.conftest import RESOURCE, bearer
from tests.gateway.support import OWN_TOOLS
from tests.server.http.conftest import Http

Json = dict[str, Any]


def operation(id: str) -> Json:
    return {"operationId": id, "responses": {"200": {"description": "ok"}}}


DOCUMENT: Json = {
    "openapi": "3.1.0",
    "info": {"title": "CRM", "version": "1"},
    "paths": {
        "/orders": {"get": operation("listOrders"), "post": operation("createOrder")},
        "/refunds": {"get": operation("listRefunds")},
    },
}
LIST: Json = {"name": "list_refunds", "operation_id": "listRefunds", "description": "Refunds."}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "GAP", 0.01)


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[..., None]:
    """Write the manifest of a plugin."""

    def write(folder_name: str, *tools: Json, **members: Any) -> None:
        folder = tmp_path / "plugins" / folder_name
        folder.mkdir(parents=True, exist_ok=True)
        content = {"name": folder_name, "version": "1", "mcp_tools": [*tools], **members}
        (folder / "manifest.json").write_text(json.dumps(content))

    return write


class Running:
    """A gateway in front of an API with plugins, and its clients."""

    def __init__(self, assembly: Assembly, keys: KeyStore) -> None:
        self.assembly = assembly
        self.keys = keys
        endpoint = Endpoint(assembly, RESOURCE, address=Address("127.0.0.1", 8000))
        self.app = endpoint.app
        self.http = Http(endpoint.app)
        self.store = PluginStore(assembly.services.database)

    async def key(self, user: str, scope: str = "mcp:*") -> str:
        _, key = await self.keys.create(user, scopes=[scope])
        await self.assembly.services.keys.refresh()
        return key

    async def names(self, key: str) -> list[str]:
        reply = await self.http.ask("tools/list", headers=bearer(key))
        names = [each["name"] for each in reply.json["result"]["tools"]]
        return sorted(each for each in names if each not in OWN_TOOLS)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Running]:
    (folder / "crm.json").write_text(json.dumps(DOCUMENT))
    tools = {"list_orders": "listOrders"}
    api = {"document": "crm.json", "baseUrl": "http://127.0.0.1:9/", "tools": tools}
    settings = {
        "database": str(folder / "gateway.db"),
        "plugins": {"folder": "plugins", "server": "crm"},
        "lock": {"mode": "off"},
    }
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"crm": {"openapi": api}}, "gateway": settings}))
    async with (
        KeyStore.open(folder / "gateway.db") as keys,
        Assembly.open(config.load(path), environ={}) as assembly,
        assembly.server.running(),
    ):
        found = Running(assembly, keys)
        try:
            yield found
        finally:
            await found.app.close()


@pytest.mark.slow("fills a database")
async def test_installed_plugin_appears_within_a_second_for_its_user_alone(tmp_path, manifest):
    manifest("refunds", LIST)
    async with running(tmp_path) as gateway:
        anna, bert = await gateway.key("anna"), await gateway.key("bert")
        assert await gateway.names(anna) == ["crm__list_orders"]
        streams = []
        for key in (anna, bert):
            session = await gateway.http.initialize(headers=bearer(key))
            streams.append(session.listen())

        assert await gateway.store.install("refunds", "user:anna", by="user:local")
        told = await streams[0].message()
        assert told["method"] == "notifications/tools/list_changed"
        assert store_changes.POLL_EVERY < 1
        assert await gateway.names(anna) == ["crm__list_orders", "crm__list_refunds"]
        assert await gateway.names(bert) == ["crm__list_orders"]
        unknown = await gateway.http.call("crm__list_refunds", {}, headers=bearer(bert))
        assert unknown.error == -32602

        assert await gateway.store.remove("refunds", "user:anna")
        assert (await streams[0].message())["method"] == "notifications/tools/list_changed"
        assert await gateway.names(anna) == ["crm__list_orders"]
        gone = await gateway.http.call("crm__list_refunds", {}, headers=bearer(anna))
        assert gone.error == -32602


@pytest.mark.slow("fills a database")
async def test_explain_names_the_plugin_that_is_not_installed(tmp_path, manifest):
    manifest("refunds", LIST)
    async with running(tmp_path) as gateway:
        parts = gateway.assembly.parts
        explainer = Explainer(gateway.assembly.server, parts.policy, parts.limiter)
        await gateway.key("anna")
        (known,) = gateway.assembly.services.keys._by_id.values()
        explained = explainer.explain(Caller(known.principal), "crm:list_refunds")

    assert (explained.effect, explained.reason) == ("deny", "not_installed")
    assert any(each.detail == "plugin refunds is not installed" for each in explained.checks)


@pytest.mark.slow("fills a database")
async def test_invalid_manifests_disable_only_themselves(tmp_path, manifest):
    manifest("refunds", LIST, {**LIST, "name": "gone", "operation_id": "noSuchOperation"})
    manifest("thief", {**LIST, "name": "list_orders"}, {**LIST, "name": "own", "url": "http://x"})
    manifest("wrong", LIST, name="other")
    (tmp_path / "plugins" / "broken").mkdir()
    (tmp_path / "plugins" / "broken" / "manifest.json").write_text("{")
    async with running(tmp_path) as gateway:
        for plugin in ("refunds", "thief", "wrong", "broken"):
            await gateway.store.install(plugin, "user:anna", by="user:local")
        key = await gateway.key("anna")
        await gateway.assembly.parts.plugins.load(gateway.store)
        gateway.assembly.server.rights_changed()

        assert await gateway.names(key) == ["crm__list_orders", "crm__list_refunds"]
        missing = "\n".join(gateway.assembly.server.toolbox.status["crm"].missing)

    assert "tool 'gone': " in missing
    assert "tool 'plugin thief: list_orders': another tool has this name" in missing
    assert "tool 'plugin thief: own': Object contains unknown field `url`" in missing
    assert "tool 'plugin wrong': its name 'other' is not the name of its folder" in missing
    assert "tool 'plugin broken': " in missing


async def test_manifest_can_raise_but_not_lower_the_risk_of_a_method(tmp_path, manifest):
    manifest(
        "risky",
        {**LIST, "name": "raised", "risk": "write"},
        {"name": "lowered", "operation_id": "createOrder", "risk": "read"},
    )
    async with running(tmp_path) as gateway:
        toolbox, policy = gateway.assembly.server.toolbox, gateway.assembly.parts.policy

        assert policy.risk(toolbox.find("crm:raised")) == "write"
        assert policy.risk(toolbox.find("crm:lowered")) == "write"
        assert policy.risk(toolbox.find("crm:list_orders")) == "read"


@pytest.mark.slow("fills a database")
async def test_plan_of_the_same_file_changes_nothing_though_plugins_add_tools(tmp_path, manifest):
    manifest("refunds", LIST)
    async with running(tmp_path) as gateway:
        plan = await plan_of(gateway.assembly, config.load(tmp_path / "mcp.json"))
        operations = Operations(gateway.assembly)
        hashes = {
            operations.configuration_hash,
            operations.hash_of(config.load(tmp_path / "mcp.json")),
        }

    assert plan["servers"] == {"added": [], "changed": [], "removed": []}
    assert len(hashes) == 1


def test_tool_of_two_plugins_belongs_to_the_first(tmp_path, manifest):
    manifest("b", LIST)
    manifest("a", LIST)

    first, second = read_plugins(tmp_path / "plugins", frozenset())

    assert (first.name, [each.name for each in first.tools]) == ("a", ["list_refunds"])
    assert second.problems == {"list_refunds": "another tool has this name"}


def test_folder_that_is_missing_has_no_plugins(tmp_path):
    assert plugins.read_plugins(tmp_path / "none", frozenset()) == []


def test_manifest_on_the_page_of_the_gateway_is_read_without_problems(tmp_path, manifest):
    page = (Path(__file__).parents[2] / "docs/operate/plugins.md").read_text()
    blocks = re.findall(r"```json[^\n]*\n(.*?)```", page, re.DOTALL)
    (shown,) = [each for each in blocks if "mcp_tools" in each]
    manifest("refunds")
    (tmp_path / "plugins" / "refunds" / "manifest.json").write_text(shown)

    (plugin,) = read_plugins(tmp_path / "plugins", frozenset())

    assert ([each.name for each in plugin.tools], plugin.problems) == (["refund"], {})


@pytest.mark.slow("fills a database")
async def test_changed_manifest_takes_effect_within_a_second(tmp_path, manifest):
    async with running(tmp_path) as gateway:
        anna = await gateway.key("anna")
        await gateway.store.install("refunds", "user:anna", by="user:local")
        session = await gateway.http.initialize(headers=bearer(anna))
        stream = session.listen()
        seen = []
        for change in (
            lambda: manifest("refunds", LIST),
            lambda: manifest("refunds", {**LIST, "name": "refunds_of_today"}),
            lambda: (tmp_path / "plugins" / "refunds" / "manifest.json").unlink(),
        ):
            change()
            told = await stream.message()
            assert told["method"] == "notifications/tools/list_changed"
            seen.append(await gateway.names(anna))

    assert store_changes.POLL_EVERY < 1
    assert seen == [
        ["crm__list_orders", "crm__list_refunds"],
        ["crm__list_orders", "crm__refunds_of_today"],
        ["crm__list_orders"],
    ]


async def test_installations_are_loaded_after_a_failure_though_no_change_is_reported_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(store_changes, "POLL_EVERY", 0)
    obeyed = asyncio.Event()

    class QuietDatabase:
        async def read(self, _: Any) -> set[str]:
            return set()

    class FailingStore:
        loads = 0

        async def list(self) -> list[Installation]:
            self.loads += 1
            if self.loads == 2:
                raise StoreError("the database is away")
            return [Installation("refunds", "user:anna", "user:local", 0)] if self.loads > 2 else []

    async def read_again() -> None:
        raise AssertionError("no manifest has changed")

    current = plugins.Plugins(folder=tmp_path, stamps={})
    store = cast("PluginStore", FailingStore())
    async with (
        ChangeFeed(cast("Database", QuietDatabase())).running() as feed,
        plugins.following(feed, store, lambda: current, obeyed.set, read_again),
    ):
        await obeyed.wait()

    assert current.has("user:anna", "refunds")
