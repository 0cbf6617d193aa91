"""Schemas reduced to what llama.cpp compiles into a grammar."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.models.gguf.schemas import grammar_schema
from tests.support.rows import each_row


@each_row(
    ("schema", "reduced"),
    [
        ({"type": "string", "pattern": "^a+$", "maxLength": 10**9}, {"type": "string"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "string", "description": "d", "x-y": 1}, {"description": "d", "type": "string"}),
        ({"const": 1, "type": "integer"}, {"const": 1}),
        ({"enum": ["a", 1]}, {"enum": ["a", 1]}),
        ({"enum": list(range(501)), "type": "integer"}, {"type": "integer"}),
        ({"oneOf": [{"type": "null"}, {"not": {}}]}, {"anyOf": [{"type": "null"}, {}]}),
        (
            {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 3},
            {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 3},
        ),
        ({"type": "array", "maxItems": 10_000}, {"type": "array", "items": {}}),
        ({"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}),
        ({"$ref": "#/$defs/loop"}, {}),
        ({"$ref": "#/elsewhere"}, {}),
        (True, {}),
    ],
)
def test_keywords_that_break_or_slow_a_grammar_are_left_out(schema: Any, reduced: Any) -> None:
    definitions = {"a": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}}
    tool = {"type": "object", "properties": {"x": schema}, "$defs": definitions}

    assert grammar_schema(msgspec.json.encode(tool))["properties"]["x"] == reduced


def test_arguments_without_a_name_in_the_schema_are_not_offered() -> None:
    tool = {"type": "object", "properties": {"x": {}}, "required": ["x", "missing"]}

    found = grammar_schema(msgspec.json.encode(tool))

    assert (found["required"], found["additionalProperties"]) == (["x"], False)
    assert grammar_schema(b'{"type":"object"}')["additionalProperties"] is True


def test_deeply_nested_schema_is_cut() -> None:
    nested: Any = {"type": "string"}
    for _ in range(40):
        nested = {"type": "array", "items": nested}

    found = grammar_schema(msgspec.json.encode({"type": "object", "properties": {"x": nested}}))

    assert len(msgspec.json.encode(found)) < 1_000
