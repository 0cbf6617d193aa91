"""The search of a toolbox, which follows the changes of its tools."""

from __future__ import annotations

import asyncio

import pytest

from interlock import Server, Toolbox
from interlock.toolbox import tool_finder
from tests.support.scripted_server import LEGACY, ScriptedServer, tool


def offering(*names: str) -> ScriptedServer:
    return ScriptedServer(LEGACY, {"tools/list": {"tools": [tool(each) for each in names]}})


async def test_the_index_is_made_by_the_first_search_and_follows_changes() -> None:
    server = offering("find_page")
    async with Toolbox({"wiki": server}) as toolbox:
        assert toolbox._finder is None
        before = await toolbox.finder.search(["find page"])
        await toolbox.replace({"wiki": server, "crm": offering("find_contact")})
        after = await toolbox.finder.search(["find contact", "find page"], 2)
        assert toolbox.finder.is_complete

    assert [each.address for each in before] == ["wiki:find_page"]
    assert [each.address for each in after] == ["crm:find_contact", "wiki:find_page"]


async def test_a_search_does_not_wait_long_for_a_large_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tool_finder, "MAX_WAIT", 0.0)
    names = [f"find_page_{n}" for n in range(300)]
    async with Toolbox({"wiki": offering(*names)}) as toolbox:
        first = await toolbox.finder.search(["find page"], 1_000)
        was_complete = toolbox.finder.is_complete
        await toolbox.finder.finish()
        second = await toolbox.finder.search(["find page"], 1_000)
        assert toolbox.finder.is_complete

    assert not was_complete
    assert len(first) < len(second) == 300


async def test_a_toolbox_closes_while_its_tools_are_being_indexed() -> None:
    names = [f"find_page_{n}" for n in range(500)]
    async with Toolbox({"wiki": offering(*names)}) as toolbox:
        searching = asyncio.create_task(toolbox.finder.search(["page"]))
        await asyncio.sleep(0)
    assert len(await searching) <= 5


async def test_names_match_a_query_with_all_their_words_or_all_of_its_words() -> None:
    async with Toolbox({"wiki": Server("wiki")}) as toolbox:
        addresses = ["wiki:create_page", "crm:create_contact", "x:delete"]
        for query, expected in (
            ("create page", ["wiki:create_page"]),
            ("wiki page", ["wiki:create_page"]),
            ("please delete this contact", ["x:delete"]),
            ("", []),
        ):
            assert toolbox.finder.named([query], addresses) == expected
