"""The operator's list of tools."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import ConfigError
from interlock.openapi.selection import read_tools
from tests.support.rows import each_row


def test_entries_are_read_by_name_or_as_a_list():
    wanted = {"operation": "getOrder", "arguments": {"id": {"name": "order"}}, "body": "nested"}

    by_name = read_tools({"get_order": wanted, "list": "GET /orders"})
    listed = read_tools([{"name": "get_order", **wanted}, {"name": "list", "operation_id": "x"}])

    assert by_name["get_order"] == listed["get_order"]
    assert by_name["list"].operation == "GET /orders"
    assert listed["list"].operation == "x"


def test_empty_tools_member_selects_no_operation():
    assert read_tools({}) == read_tools([]) == {}


@each_row(
    ("tools", "problem"),
    [
        ("all", "tools must be an object or a list, not a string"),
        ({"a b": "x"}, "invalid tool name 'a b'; use 1 to 64"),
        ({"a" * 65: "x"}, "invalid tool name"),
        ({"*": "x"}, "invalid tool name"),
        ({"a": {}}, "tools.a is not valid: .*operation"),
        ({"a": {"operation": "x", "urlPrefix": "y"}}, "tools.a is not valid: .*urlPrefix"),
        ({"a": {"operation": "x", "arguments": {"q": {"nam": "r"}}}}, "tools.a is not valid"),
        ({"a": {"operation": "x", "arguments": {"q": {"name": "r s"}}}}, "invalid name 'r s'"),
        ({"a": {"operation": "x", "body": "deep"}}, "tools.a is not valid"),
        ([{"operation": "x"}], r'tools\[0\] needs "name"'),
        ([{"name": "a", "operation": "x"}] * 2, r"tools\[1\] repeats the name 'a'"),
        ({f"t{i}": "x" for i in range(1_001)}, r"too many entries \(1,001, limit 1,000\)"),
    ],
)
def test_wrong_entry_is_refused_with_its_place(tools: Any, problem: str):
    with pytest.raises(ConfigError, match=problem):
        read_tools(tools)
