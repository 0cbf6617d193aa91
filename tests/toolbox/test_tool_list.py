"""The tools of a server as the toolbox offers them, and those that it leaves out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.errors import RemoteProtocolError
from interlock.schema import compile
from interlock.toolbox import tool_list
from interlock.toolbox.tool_list import MAX_DESCRIPTION
from tests.support.rows import each_row
from tests.support.scripted_server import tool
from tests.toolbox.upstreams import call, served, started

BOMB = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/a0"}},
    "$defs": {
        **{f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(25)},
        "a25": {"type": "string"},
    },
}


async def test_unusable_tool_is_left_out_with_its_reason():
    server = served(
        tool("good"),
        tool("bomb", inputSchema=BOMB),
        tool("outside", inputSchema={"type": "object", "$ref": "https://example.org/x"}),
        tool("list", inputSchema={"type": "array"}),
        tool("nothing", inputSchema=False),
        tool("good"),
        tool(""),
    )
    async with started(server) as upstream:
        missing = upstream.status.missing

        assert [each.tool.name for each in upstream.entries] == ["good"]
        names = ["nothing", "good", "bomb", "outside", "list", ""]
        for name, line in zip(names, missing, strict=True):
            assert f"tool '{name}'" in line
        assert upstream.status.state == "ok"


TEXT = {"type": "string"}
BOUND = {"type": "integer", "minimum": 0, "exclusiveMinimum": True}
ALMOST: list[tuple[Any, Any, Any]] = [  # input schema, arguments that fit, arguments that do not
    (None, {}, None),
    ([], {}, None),
    (True, {"a": 1}, None),
    ({}, {}, None),
    ({"type": None, "properties": None}, {}, None),
    ({"type": "object", "properties": []}, {}, None),
    ({"type": "object", "properties": {}, "required": None}, {}, None),
    ({"type": "object", "properties": {"a": TEXT}, "required": "a"}, {"a": "x"}, {}),
    ({"type": ["object", "null"]}, {}, None),
    ({"type": "Object"}, {}, None),
    ({"properties": {"a": TEXT}}, {"a": "x"}, {"a": 1}),
    ({"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"a": TEXT}}}}, {"a": "x"}, {"a": 1}),
    ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": 1}, {}),
    # Parts that are not valid, in the dialect that the schema names or in any
    ({"properties": {"a": {"type": "any"}, "b": None, "c": TEXT}}, {"a": 1}, {"c": 1}),
    ({"properties": {"a": {"type": "string", "required": True}}}, {"a": "x"}, {}),
    ({"properties": {"a": BOUND}}, {"a": 1}, {"a": 0}),
    ({"properties": {"a": {"items": [TEXT]}}, "not": {"required": ["b"]}}, {"a": [""]}, {"b": 1}),
    ({"$schema": "http://json-schema.org/draft-03/schema#", "properties": {"a": TEXT}}, {}, None),
]


async def test_tool_whose_schema_is_almost_an_object_is_offered_and_checked():
    tools = [tool(f"t{n}", inputSchema=schema) for n, (schema, *_) in enumerate(ALMOST)]
    async with started(served({"name": "without"}, *tools)) as upstream:
        assert upstream.status.missing == ()
        entries = {each.tool.name: each for each in upstream.entries}
        for name, (schema, fits, not_fits) in zip(list(entries)[1:], ALMOST, strict=True):
            check = compile(entries[name].input_schema)
            assert check.errors(fits) == [], schema
            assert not_fits is None or check.errors(not_fits), schema
        for entry in entries.values():
            listed = msgspec.json.decode(entry.definition)["inputSchema"]
            assert listed == entry.tool.input_schema == msgspec.json.decode(entry.input_schema)
            assert listed["type"] == "object"
            assert isinstance(listed.get("properties", {}), dict)


@each_row(
    "schema",
    [
        {"type": "string"},
        {"type": ["string", "null"]},
        {"enum": ["a"]},
        {"items": TEXT},
        {"$ref": "#/$defs/A", "$defs": {"A": TEXT}},
        {"type": "object", "properties": [{"name": "a"}]},
        {"type": "object", "properties": {"a": {"$ref": "other.json"}}},
        False,
        "object",
        [TEXT],
    ],
)
async def test_tool_whose_schema_is_plainly_something_else_is_left_out(schema: Any):
    async with started(served(tool("good"), tool("bad", inputSchema=schema))) as upstream:
        assert [each.tool.name for each in upstream.entries] == ["good"]
        assert "'bad'" in upstream.status.missing[0]


async def test_tool_with_malformed_results_is_flagged_until_the_next_list():
    server = served(tool("x"), tool("y"), call={"content": 7})
    async with started(server) as upstream:
        for _ in range(2):
            with pytest.raises(RemoteProtocolError):
                await call(upstream)
        (flag,) = upstream.status.flagged
        state = upstream.status.state
        upstream._lists._listed_until = 0.0
        await upstream.refresh()

        assert flag.startswith("tool 'x': 2 wrong results, the last one: malformed tools/call")
        assert state == "ok"  # the others may be as they should be
        assert upstream.status.flagged == ()


async def test_long_description_is_truncated():
    server = served(tool("x", description="d" * (MAX_DESCRIPTION + 1)), tool("y", description="d"))
    async with started(server) as upstream:
        long, short = (each.tool.description for each in upstream.entries)

    assert long == "d" * MAX_DESCRIPTION + " [cut]"
    assert short == "d"


async def test_tools_over_the_limit_are_reported_as_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tool_list, "MAX_TOOLS", 2)
    async with started(served(*(tool(name) for name in "abcde"))) as upstream:
        assert [each.tool.name for each in upstream.entries] == ["a", "b"]
        assert upstream.status.missing == ("the list is cut after 2 tools of 5",)
