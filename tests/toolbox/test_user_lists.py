"""The lists of a server that offers different tools to different users."""

from __future__ import annotations

import pytest

from interlock.client.listing import RESOURCES, TOOLS, Listing
from interlock.toolbox import user_lists
from interlock.toolbox.user_lists import UserLists
from interlock.types import Resource, Tool


def tools(*names: str, description: str = "") -> Listing[Tool]:
    listing: Listing[Tool] = Listing()
    for name in names:
        listing.append(Tool(name=name, description=description, input_schema={}))
        listing.definitions.append({"name": name, "description": description})
    return listing


def test_the_merged_list_has_the_tools_of_all_users_by_their_newest_definition():
    lists = UserLists()
    lists.merge(TOOLS, "anna", tools("a", "both", description="old"))

    merged = lists.merge(TOOLS, "bert", tools("both", "b", description="new"))

    assert [(each.name, each.description) for each in merged] == [
        ("both", "new"),
        ("b", "new"),
        ("a", "old"),
    ]
    assert [each["name"] for each in merged.definitions] == ["both", "b", "a"]


def test_a_tool_that_no_user_has_any_more_leaves_the_list():
    lists = UserLists()
    lists.merge(TOOLS, "anna", tools("a", "shared"))
    lists.merge(TOOLS, "bert", tools("shared"))

    assert [each.name for each in lists.merge(TOOLS, "anna", tools())] == ["shared"]


def test_a_user_whose_list_is_unknown_sees_tools_and_no_resources():
    lists = UserLists()
    lists.merge(TOOLS, "anna", tools("a"))
    resources: Listing[Resource] = Listing()
    resources.append(Resource(uri="file:///private", name="private"))
    resources.definitions.append({})
    lists.merge(RESOURCES, "anna", resources)

    assert lists.sees("anna", "tools", "a")
    assert not lists.sees("anna", "tools", "b")
    assert lists.sees("anna", "resources", "file:///private")
    assert lists.sees("bert", "tools", "a")
    assert not lists.sees("bert", "resources", "file:///private")
    assert lists.remove("anna")
    assert not lists.remove("anna")
    assert not lists.has("anna")


def test_lists_of_many_users_are_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(user_lists, "MAX_USERS", 2)
    lists = UserLists()
    for user in ("anna", "bert", "carl"):
        lists.merge(TOOLS, user, tools(user))

    assert [lists.has(each) for each in ("anna", "bert", "carl")] == [False, True, True]
