"""The declared shape of answers."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.openapi import document
from interlock.openapi.plan import compile_tools
from interlock.openapi.selection import read_tools
from tests.support.rows import each_row

ORDER = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "state": {"type": "string", "enum": ["new", "paid"]},
        "items": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
        "password": {"type": "string", "writeOnly": True},
        "any": {},
    },
}


def shape(responses: dict[str, Any], tool: dict[str, Any] | None = None, **schemas: Any) -> Any:
    root = {
        "openapi": "3.1.0",
        "paths": {"/x": {"get": {"responses": responses}}},
        "components": {"schemas": schemas},
    }
    plans, _ = compile_tools(
        document.read(msgspec.json.encode(root)),
        read_tools({"tool": {"operation": "GET /x", **(tool or {})}}),
    )
    return plans["tool"].definition.get("outputSchema")


def ok(schema: Any, media_type: str = "application/json") -> dict[str, Any]:
    return {"description": "OK", "content": {media_type: {"schema": schema}}}


def test_shape_has_kinds_and_names_and_none_of_the_rules():
    found = shape({"200": ok(ORDER)}, Item={"properties": {"name": {"type": "string"}}})

    assert found == {
        "type": "object",
        "properties": {
            "id": {"type": ["number", "null"]},
            "state": {"type": ["string", "null"]},
            "items": {
                "type": ["array", "null"],
                "items": {
                    "type": ["object", "null"],
                    "properties": {"name": {"type": ["string", "null"]}},
                },
            },
            "any": {},
        },
    }


@each_row(
    ("responses", "has_shape"),
    [
        ({"200": ok({"type": "array", "items": {"type": "string"}})}, True),
        ({"200": ok(ORDER, "text/csv")}, False),
        ({"404": ok({"type": "object", "properties": {"a": {}}})}, False),
        ({"default": ok({"type": "string"})}, False),
        ({"2XX": ok({"type": "string"}, "application/vnd.x+json")}, True),
        ({"200": ok({})}, False),
        ({"200": ok({"$ref": "#/nowhere"})}, False),
        ({str(200 + i): ok({"type": "array", "items": {"const": i}}) for i in range(5)}, False),
        ({"204": {"description": "Done"}}, False),
    ],
)
def test_shape_is_declared_for_json_of_success_only(responses: Any, has_shape: bool):
    assert (shape(responses) is not None) == has_shape


def test_operator_can_leave_the_shape_out():
    assert shape({"200": ok({"type": "string"})}, {"output": "none"}) is None


def test_shapes_of_several_answers_are_alternatives():
    first = {"type": "object", "properties": {"a": {"type": "string"}}}
    found = shape({"200": ok(first), "202": ok({"type": "object"}), "201": ok(first)})

    assert found["type"] == "object"
    assert len(found["anyOf"]) == 2


def test_schema_alternatives_and_parts_are_merged_into_one_shape():
    union = {
        "anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "string"}],
        "allOf": [{"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}],
    }

    found = shape({"200": ok(union)})

    assert found["type"] == ["object", "string", "null"]
    assert found["properties"] == {"a": {"type": ["number", "string", "null"]}, "b": {}}


def test_recursive_and_large_answers_are_cut_to_the_budget():
    tree = {
        "type": "object",
        "properties": {f"t{i}": {"$ref": "#/components/schemas/Tree"} for i in range(9)},
    }
    found = shape({"200": ok({"$ref": "#/components/schemas/Tree"})}, Tree=tree)

    assert set(found["properties"]) == {f"t{i}" for i in range(9)}
    assert len(msgspec.json.encode(found)) <= 4 * 1024
