"""Lists: page by page, item by item, with bounds."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from interlock.client import listing
from interlock.client.listing import Listing, collect
from interlock.errors import RemoteError, RemoteProtocolError
from interlock.types import Prompt, ToolAnnotations
from tests.support.rows import each_row
from tests.support.scripted_server import tool

Json = dict[str, Any]


def run(coroutine: Any) -> Any:
    """Run what never really waits, without an event loop."""
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    return stopped.value.value


def pages(*given: Any, asked: list[Json] | None = None) -> Callable[[bytes], Awaitable[Raw]]:
    """Make a server of these pages; the last one comes again and again."""
    left = list(given)

    async def ask(params: bytes) -> Raw:
        if asked is not None:
            asked.append(json.loads(params))
        return Raw(json.dumps(left.pop(0) if len(left) > 1 else left[0]).encode())

    return ask


def tools(*given: Any, asked: list[Json] | None = None) -> Listing[Any]:
    """List the tools of these pages."""
    listed: Listing[Any] = run(collect(listing.TOOLS, pages(*given, asked=asked)))
    return listed


def names(listed: Listing[Any]) -> list[str]:
    return [each.name for each in listed]


def test_pages_are_requested_in_order():
    asked: list[Json] = []
    listed = tools(
        {"tools": [tool("a"), tool("b")], "nextCursor": "2"},
        {"tools": [], "nextCursor": ""},
        {"tools": [tool("c")]},
        asked=asked,
    )

    assert names(listed) == ["a", "b", "c"]
    assert asked == [{}, {"cursor": "2"}, {"cursor": ""}]
    assert (listed.skipped, listed.truncated) == ([], "")


@each_row(
    ("kind", "member", "item"),
    [
        (listing.TOOLS, "tools", tool("x")),
        (listing.RESOURCES, "resources", {"uri": "a:b", "name": "b"}),
        (listing.TEMPLATES, "resourceTemplates", {"uriTemplate": "a:{b}", "name": "b"}),
        (listing.PROMPTS, "prompts", {"name": "x", "arguments": [{"name": "a", "required": True}]}),
    ],
)
def test_each_kind_of_list_reads_its_own_member(kind: Any, member: str, item: Json):
    (listed,) = run(collect(kind, pages({member: [item]})))
    assert isinstance(listed, kind.type)

    with pytest.raises(RemoteProtocolError, match=f"returned no list of {kind.noun}s"):
        run(collect(kind, pages({"others": [item]})))


def test_malformed_item_is_skipped_alone():
    wrong = {"name": "no schema", "inputSchema": "text"}
    bad: list[Any] = [wrong, {"inputSchema": {}}, 1, None, {"name": 7}, []]

    listed = tools({"tools": [tool("first"), *bad, tool("last")]})

    assert names(listed) == ["first", "last"]
    assert len(listed.skipped) == len(bad)
    assert listed.skipped[0].startswith("tool 'no schema' is malformed: ")
    assert listed.skipped[1].startswith("tool number 3 is malformed: ")


HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
SCHEMA = {"type": "object", "properties": {"a": {"default": None, "enum": [None, 1]}}}


NEEDS_A = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@each_row(
    "item",
    [
        {"inputSchema": json.dumps(NEEDS_A)},
        {"inputSchema": {"jsonSchema": NEEDS_A}},
        {"input_schema": NEEDS_A},
        {"inputSchema": None, "parameters": NEEDS_A},
    ],
)
def test_an_input_schema_in_another_place_is_found(item: Json):
    (listed,) = tools({"tools": [{"name": "x", **item}]})

    assert listed.input_schema == NEEDS_A


def test_the_place_of_the_specification_counts_first():
    (listed,) = tools({"tools": [tool("x") | {"parameters": NEEDS_A, "input_schema": NEEDS_A}]})

    assert listed.input_schema == tool("x")["inputSchema"]


def test_a_page_may_be_a_bare_list_or_an_empty_object():
    assert names(tools([tool("a"), "b", tool("c")])) == ["a", "c"]
    assert names(tools({"_meta": {}})) == []


def test_null_members_are_ignored_except_in_schemas():
    """Many servers write null for a description that is missing."""
    listed = tools(
        {
            "tools": [
                {
                    "name": "a",
                    "inputSchema": SCHEMA,
                    "annotations": dict.fromkeys(HINTS),
                    **dict.fromkeys(("description", "title", "icons", "outputSchema", "_meta")),
                }
            ]
        }
    )

    assert listed.skipped == []
    assert listed[0].description == ""
    assert listed[0].annotations == ToolAnnotations()
    assert listed[0].input_schema == SCHEMA


def test_null_members_are_ignored_in_prompt_arguments():
    argument = {"name": "a", "description": None, "required": None}
    prompt = {"name": "p", "description": None, "arguments": [argument]}
    listed: Listing[Prompt] = run(collect(listing.PROMPTS, pages({"prompts": [prompt]})))

    assert listed.skipped == []
    assert [each.required for each in listed[0].arguments or ()] == [False]


@each_row(
    "item",
    [
        {"name": None},
        {"name": 7, "description": None},
        {"annotations": None, "description": ["x"]},
    ],
)
def test_a_malformed_item_is_named(item: Json):
    listed = tools({"tools": [tool("a") | item, tool("b")]})

    assert names(listed) == ["b"]
    assert "is malformed: " in listed.skipped[0]


@each_row(
    ("odd", "strict"),
    [
        ({"_meta": [], "annotations": []}, {"_meta": {}, "annotations": {}}),  # PHP's empty object
        ({"description": 7, "title": None}, {"description": "7"}),
        ({"annotations": {"readOnlyHint": "true"}}, {"annotations": {"readOnlyHint": True}}),
        ({"annotations": "read-only", "icons": ["a.png"]}, {}),
        ({"outputSchema": True}, {"outputSchema": {}}),
        ({"outputSchema": "x", "title": ["a"]}, {}),
        ({"title": None, "icons": None, "execution": None, "_meta": None}, {}),  # C# and Java
        ({"inputSchema": {"type": "object", "default": None}},) * 2,
    ],
)
def test_an_odd_member_costs_no_tool_and_is_forwarded_in_its_strict_form(odd: Json, strict: Json):
    listed = tools({"tools": [tool("a") | odd | {"new": [None]}]})

    assert listed.definitions == [tool("a") | strict | {"new": [None]}]
    assert listed.skipped == []


def test_repeated_name_keeps_the_first_item():
    listed = tools(
        {"tools": [tool("a", description="first"), tool("a")], "nextCursor": "2"},
        {"tools": [tool("a"), tool("b")]},
    )

    assert names(listed) == ["a", "b"]
    assert listed[0].description == "first"
    assert listed.skipped == ["tool 'a' is listed twice; the first one counts"] * 2


# Bounds


def test_list_of_malformed_items_is_truncated(monkeypatch: pytest.MonkeyPatch):
    """R-118: each item that is left out is named."""
    monkeypatch.setattr(listing, "MAX_SKIPPED", 5)
    listed = tools(*[{"tools": [1, 2, tool("a")], "nextCursor": str(page)} for page in range(9)])

    assert names(listed) == ["a"]
    assert len(listed.skipped) == 5
    assert listed.truncated == "tools/list: cut after 5 malformed items"


def test_repeated_name_is_shortened_in_the_report():
    listed = tools({"tools": [tool("x" * 1_000_000), tool("x" * 1_000_000)]})

    assert len(listed.skipped[0]) < 200


def test_bytes_of_all_pages_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listing, "MAX_BYTES", 3 * 2**20)
    large = [{"tools": [tool(str(page), description="x" * 2**20)]} for page in range(9)]
    listed = tools(*[{**page, "nextCursor": str(place)} for place, page in enumerate(large)])

    assert names(listed) == ["0", "1"]
    assert listed.truncated == "tools/list: cut after 3 MiB"


def test_returning_cursor_ends_the_list():
    listed = tools(
        {"tools": [tool("a")], "nextCursor": "x"},
        {"tools": [tool("b")], "nextCursor": "y"},
        {"tools": [tool("c")], "nextCursor": "x"},
    )

    assert names(listed) == ["a", "b", "c"]
    assert listed.truncated == "tools/list: the server returned cursor 'x' twice"


def test_endless_pages_are_truncated(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listing, "MAX_PAGES", 5)
    asked: list[Json] = []
    endless = [{"tools": [tool(f"t{n}")], "nextCursor": str(n)} for n in range(9)]

    listed = tools(*endless, asked=asked)

    assert names(listed) == ["t0", "t1", "t2", "t3", "t4"]
    assert listed.truncated == "tools/list: cut after 5 pages"
    assert len(asked) == 5


@each_row(
    ("sizes", "cut"), [([3, 3], True), ([6], True), ([5, 1], True), ([5], False), ([2, 3], False)]
)
def test_endless_items_are_truncated(monkeypatch: pytest.MonkeyPatch, sizes: list[int], cut: bool):
    monkeypatch.setattr(listing, "MAX_ITEMS", 5)
    made: list[Json] = []
    for page, size in enumerate(sizes):
        made.append({"tools": [tool(f"{page}.{n}") for n in range(size)], "nextCursor": str(page)})
    del made[-1]["nextCursor"]

    listed = tools(*made)

    assert len(listed) == 5
    assert listed.truncated == ("tools/list: cut after 5 items" if cut else "")


# Time to live


@each_row(
    ("ttls", "seconds"),
    [([5_000], 5.0), ([5_000, 3_000], 3.0), ([5_000, None], 0.0), ([-1], 0.0), ([None], 0.0)],
)
def test_list_expires_with_its_shortest_page(ttls: list[int | None], seconds: float):
    made: list[Json] = []
    for page, ttl in enumerate(ttls):
        made.append(
            {"tools": [], "nextCursor": str(page)} | ({} if ttl is None else {"ttlMs": ttl})
        )
    del made[-1]["nextCursor"]

    assert tools(*made).ttl == seconds


# Failures


@each_row(
    "page",
    [
        {"tools": "x"},
        {"items": []},
        "x",
        {"tools": [], "nextCursor": [1]},
        {"tools": [], "ttlMs": "soon"},
        {"tools": [], "resultType": "input_required"},
    ],
)
def test_malformed_page_is_an_error(page: Json):
    with pytest.raises(RemoteProtocolError, match="tools/list"):
        tools(page)


def test_error_on_a_later_page_is_raised():
    answers = [Raw(b'{"tools":[],"nextCursor":"2"}')]

    async def ask(_: bytes) -> Raw:
        if not answers:
            raise RemoteError(-32602, "invalid cursor")
        return answers.pop()

    with pytest.raises(RemoteError, match="invalid cursor"):
        run_to_error(collect(listing.TOOLS, ask))


def run_to_error(coroutine: Any) -> None:
    coroutine.send(None)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["a", "b"]) | st.none() | st.integers(),
                "inputSchema": st.just({}) | st.none() | st.booleans(),
                "annotations": st.none() | st.just({"readOnlyHint": 1}),
                "_meta": st.none() | st.just(7),
            },
        )
        | st.integers(),
        max_size=8,
    )
)
def test_every_item_is_listed_or_named_as_skipped(items: list[Any]):
    listed = tools({"tools": items})

    assert len(listed) + len(listed.skipped) == len(items)
    assert len({each.name for each in listed}) == len(listed)
