"""Resources and prompts of a server: listed when they have changed, kept when they cannot be."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from interlock import Client
from interlock.errors import RemoteError
from interlock.revisions import METHOD_NOT_FOUND
from interlock.text.redaction import Redactor
from interlock.toolbox.item_lists import ItemLists
from interlock.toolbox.pins import CheckedLists
from interlock.toolbox.pool import SHARED, PooledClient
from interlock.toolbox.user_lists import UserLists
from tests.support.scripted_server import LEGACY, Json, ScriptedServer


def no_templates(_: Json) -> Json:
    raise RemoteError(METHOD_NOT_FOUND, "unknown method")


def server(**capabilities: Json) -> ScriptedServer:
    """Return a server with a resource and a prompt that are called "a"."""
    answers = {
        "resources/list": {"resources": [{"uri": "x://a", "name": "a"}]},
        "resources/templates/list": no_templates,
        "prompts/list": {"prompts": [{"name": "a"}]},
    }
    return ScriptedServer(
        LEGACY, answers, capabilities=capabilities or {"resources": {}, "prompts": {}}
    )


@asynccontextmanager
async def connected(server: ScriptedServer) -> AsyncIterator[tuple[ItemLists, PooledClient]]:
    lists = ItemLists("crm", CheckedLists("crm", None), UserLists())
    lists.note_all()
    async with Client.memory(server, revision=LEGACY) as client:
        yield lists, PooledClient(SHARED, client, Redactor())


def names(lists: ItemLists) -> dict[str, list[str]]:
    return {kind: [each.name for each in listed] for kind, listed in lists.found.items()}


async def test_a_server_without_templates_has_an_empty_list_of_them():
    async with connected(server()) as (lists, pooled):
        assert await lists.list_changed(pooled, is_personal=False)

    assert names(lists) == {"resources": ["a"], "resourceTemplates": [], "prompts": ["a"]}


async def test_only_a_changed_list_is_requested_again():
    scripted = server()
    async with connected(scripted) as (lists, pooled):
        await lists.list_changed(pooled, is_personal=False)
        scripted.answers["prompts/list"] = {"prompts": [{"name": "b"}]}
        lists.note_change("prompts")

        assert await lists.list_changed(pooled, is_personal=False)
        assert names(lists)["prompts"] == ["b"]
        lists.note_change("prompts")
        assert not await lists.list_changed(pooled, is_personal=False)
    assert len(scripted.sent("resources/list")) == 1


async def test_list_that_cannot_be_read_keeps_its_last_content(caplog: pytest.LogCaptureFixture):
    def fails(_: Json) -> Json:
        raise RemoteError(-32603, "broken")

    scripted = server()
    async with connected(scripted) as (lists, pooled):
        await lists.list_changed(pooled, is_personal=False)
        scripted.answers["resources/list"] = fails
        lists.note_change("resources")

        with caplog.at_level(logging.WARNING):
            assert not await lists.list_changed(pooled, is_personal=False)

    assert names(lists)["resources"] == ["a"]
    assert "server 'crm': resources not listed: broken" in caplog.text


async def test_a_server_that_lacks_a_capability_is_not_asked():
    scripted = server(tools={})
    async with connected(scripted) as (lists, pooled):
        assert not await lists.list_changed(pooled, is_personal=False)

    assert scripted.sent("resources/list") == scripted.sent("prompts/list") == []
