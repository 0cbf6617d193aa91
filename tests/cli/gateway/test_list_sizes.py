"""Warnings about lists that fill a model's context."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock import Toolbox
from interlock.auth.principal import Principal
from interlock.cli.gateway.list_sizes import long_lists, principals_in
from interlock.config.gateway import GatewaySettings, View, ViewSearch
from interlock.policy import Policy
from interlock.store import KeyStore
from tests.support.scripted_server import LEGACY, ScriptedServer, tool

TOOLS = [tool(name, description="x" * 30_000) for name in ("get", *"abcde")]


async def test_each_view_that_lists_too_much_is_named_with_its_largest_key() -> None:
    views = {"s": View(search=ViewSearch(is_on=True)), "v": View(), "one": View(allow=("l:get",))}
    settings = GatewaySettings(views=views)
    policy = Policy.compile(None, views=views)
    principals = [
        Principal("user:a", frozenset({"mcp:l:get"}), key_id="small"),
        Principal("user:b", frozenset({"mcp:*"}), key_id="large"),
        Principal("user:c", frozenset({"mcp:*"}), key_id="bound", view="s"),
    ]
    async with Toolbox({"l": ScriptedServer(LEGACY, {"tools/list": {"tools": TOOLS}})}) as toolbox:
        lines = [*long_lists(settings, policy, toolbox.tools, principals)]
        without_keys = [*long_lists(settings, policy, toolbox.tools, [])]
        searching = GatewaySettings(search=ViewSearch(is_on=True))
        none = [*long_lists(searching, policy, toolbox.tools, principals)]

    for line, where, member in zip(lines, ("/mcp", "view v"), ("gateway", "views.v"), strict=True):
        assert line.startswith(f"{where} lists definitions of 12,")
        assert "tokens for key large (advised limit 10,000)" in line
        assert f'{member}.toolSearch to "on"' in line
    assert len(without_keys) == 2
    assert none == []


@pytest.mark.slow("fills a database")
async def test_principals_are_the_owners_of_active_keys(tmp_path: Path) -> None:
    place = tmp_path / "i.db"
    async with KeyStore.open(str(place)) as keys:
        await keys.create("anna", scopes=("mcp:*",))
        await keys.create("anna", scopes=("mcp:*",))
        revoked, _ = await keys.create("berta", scopes=("mcp:*",))
        await keys.revoke(revoked.id)
    assert [each.id for each in await principals_in(place)] == ["user:anna"]
    assert await principals_in(None) == []
