"""Schemas for Gemini say as much as its format can."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.schema.gemini import narrowed
from interlock.schema.portable import portable
from tests.providers.schema_rules import gemini
from tests.support.rows import each_row

TEXT = {"type": "string"}


@each_row(
    "given, expected",
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        (
            {"anyOf": [TEXT, {"type": "null"}], "description": "d"},
            {"type": "string", "nullable": True, "description": "d"},
        ),
        ({"type": ["string", "integer"]}, {"anyOf": [TEXT, {"type": "integer"}]}),
        ({"enum": ["a", "", None]}, {"type": "string", "nullable": True, "enum": ["a"]}),
        ({"enum": [1, 2]}, {"type": "integer", "description": "One of: 1, 2."}),
        (
            {"type": "integer", "exclusiveMinimum": 0},
            {"type": "integer", "description": "More than 0."},
        ),
        ({"type": "string", "format": "date"}, {"type": "string", "description": "Format: date."}),
        ({"type": "object", "additionalProperties": TEXT}, {"type": "object"}),
        ({"$ref": "#/$defs/A"}, {"type": "object", "properties": {"x": TEXT}}),
        (
            {"type": "array", "items": [TEXT], "additionalItems": False},
            {"type": "array", "items": TEXT, "maxItems": 1},
        ),
    ],
)
def test_a_part_that_gemini_refuses_is_written_differently(given: Any, expected: Any) -> None:
    document = {
        "type": "object",
        "properties": {"a": given},
        "$defs": {"A": {"type": "object", "properties": {"x": TEXT}}},
    }

    found = msgspec.json.decode(narrowed(portable(msgspec.json.encode(document)).encoded))

    assert gemini("t", found) == ""
    assert found == {"type": "object", "properties": {"a": expected}}


def test_a_recursive_schema_ends() -> None:
    document = {"type": "object", "properties": {"child": {"$ref": "#"}, "other": {"$ref": "#"}}}

    found = narrowed(portable(msgspec.json.encode(document)).encoded)

    assert gemini("t", msgspec.json.decode(found)) == ""
    assert len(found) < 100_000
