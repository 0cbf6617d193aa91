"""Type hints for a schema."""

from __future__ import annotations

import typing
from typing import Any, Literal, NotRequired, Required, get_type_hints

from interlock.schema.annotations import MAX_TYPES, Hints, union
from tests.support.rows import each_row

OBJECT = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


def hint(schema: Any, document: Any = None) -> Any:
    return Hints(document or {}).of(schema, "it")


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@each_row(
    ("schema", "expected"),
    [
        ({"type": "string"}, str),
        ({"type": "integer"}, int),
        ({"type": "number"}, float),
        ({"type": "boolean"}, bool),
        ({"type": "null"}, type(None)),
        ({"enum": ["a", 1, None, True]}, Literal["a", 1, None, True]),
        ({"const": "a"}, Literal["a"]),
        ({"enum": [1.5, {"a": 1}, [1]]}, float | dict[str, Any] | list[Any]),
        ({"type": "array", "items": {"type": "integer"}}, list[int]),
        ({"type": "array"}, list[Any]),
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": {}}, list[Any]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, dict[str, int]),
        ({"type": "object"}, dict[str, Any]),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": {}}, dict[str, Any]),
        ({"type": ["string", "null"]}, str | None),
        ({"type": "string", "nullable": True}, str | None),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "string"}]}, str | int),
        ({"oneOf": [{"type": "integer"}, {"type": "null"}]}, int | None),
        ({"anyOf": [{"type": "null"}] * 9}, Any),
        ({"allOf": [{"type": "string"}]}, str),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, Any),
        (True, Any),
        ({}, Any),
        ({"not": {"type": "string"}}, Any),
        ({"if": {"type": "string"}}, Any),
        ({"type": "file"}, Any),
        (nested(9), list[list[list[list[list[list[list[list[list[Any]]]]]]]]]),
    ],
)
def test_a_schema_becomes_a_hint(schema: Any, expected: Any) -> None:
    assert hint(schema) == expected


def test_an_object_becomes_a_typed_dict_with_any_keys() -> None:
    schema = {
        "type": "object",
        "properties": {"a-b": {"type": "string"}, "class": {"type": "integer"}, "never": False},
        "required": ["a-b"],
    }

    found = get_type_hints(hint(schema), include_extras=True)

    assert found == {"a-b": Required[str], "class": NotRequired[int]}


def test_objects_of_an_all_of_are_merged() -> None:
    schema = {"allOf": [OBJECT, {"properties": {"b": {"type": "integer"}}}]}

    assert get_type_hints(hint(schema)) == {"a": str, "b": int}


def test_a_reference_with_escapes_is_followed() -> None:
    document = {"$defs": {"A/B~C": {"type": "integer"}}}

    assert hint({"$ref": "#/$defs/A~1B~0C"}, document) is int


@each_row(("kind", "inner"), [("object", dict[str, Any]), ("array", list[Any]), (None, Any)])
def test_a_reference_to_itself_ends_at_the_second_visit(kind: str | None, inner: Any) -> None:
    node: dict[str, Any] = {"properties": {"next": {"$ref": "#/$defs/node"}}}
    if kind:
        node["type"] = kind
        node["items"] = {"$ref": "#/$defs/node"}

    found = hint({"$ref": "#/$defs/node"}, {"$defs": {"node": node}})

    if kind == "array":
        assert found == list[list[Any]]
    else:
        assert get_type_hints(found) == {"next": inner}


def test_a_schema_with_too_many_parts_gets_any_for_the_rest() -> None:
    schema = {"anyOf": [OBJECT] * 8}
    hints = Hints({})

    found = [hints.of(schema) for _ in range(MAX_TYPES)]

    assert found[0] is not Any
    assert found[-1] is Any


def test_types_with_equal_names_get_numbers() -> None:
    hints = Hints({})

    assert [hints.of(OBJECT, "a b").__name__ for _ in range(2)] == ["AB", "AB2"]


def test_a_union_has_one_member_for_each_json_type() -> None:
    members = [list[int], list[str], Literal["a"], str, Literal[2], dict[str, int], hint(OBJECT)]

    found = union(members)

    assert set(typing.get_args(found)) == {list[int | str], str, Literal[2], dict[str, Any]}
